#include "model/mtp_head.h"

#include <fmt/format.h>

#include "base/error.h"

namespace mererun {

MtpHead::MtpHead(Ops& ops, const ModelConfig& config, const ModelWeights& weights,
                 const Activations& activations, RopeTable& rope, ResidualForm& form)
    : ops_(ops), config_(config), weights_(weights), activations_(activations), rope_(rope), form_(form) {
  MERERUN_CHECK(weights.head.has_value(), "a draft head is loaded");
}

TensorView MtpHead::forward(TensorView hidden, std::span<const TokenId> tokens, int first_slot, int base,
                            KvCache& cache) {
  const int rows = static_cast<int>(tokens.size());
  if (rows < 1 || rows > activations_.max_rows()) {
    fail_expected(ErrorCode::kInvalidArgument, "rows of a draft pass",
                  fmt::format("1..{}", activations_.max_rows()), fmt::format("{}", rows));
  }
  MERERUN_CHECK(hidden.rows == rows && hidden.cols == config_.residual_dim(), "one hidden row per token");
  cache.reserve(first_slot + rows - cache.length());
  rope_.ensure(base + first_slot + rows);
  slots_.clear();
  for (int r = 0; r < rows; ++r) slots_.push_back(first_slot + r);
  const TensorView ids = activations_.ids(rows);
  ops_.upload(ids.data, tokens.data(), tokens.size_bytes());
  ops_.upload(activations_.positions(rows).data, slots_.data(), slots_.size() * sizeof(std::int32_t));

  // The cache counts slots; seen from slot 0 the rotation starts at `base`.
  RopeView rope = rope_.view();
  rope.cos = rope.cos.row_range(base, rope.cos.rows - base);
  rope.sin = rope.sin.row_range(base, rope.sin.rows - base);
  const PassContext pass{ops_, config_, activations_, rope, rows, hooks_};
  const LayerWeights& layer = weights_.head->layer;
  using SubBlock = ResidualForm::SubBlock;
  form_.join_head(pass, hidden);
  form_.read(pass, layer, SubBlock::kMixer);
  const AttentionSegment segment{0, rows, first_slot, cache.layer(0)};
  form_.attend(pass, layer, config_.layers, {&segment, 1});
  form_.write(pass, layer, SubBlock::kMixer);
  form_.read(pass, layer, SubBlock::kFeedForward);
  constexpr bool kAlwaysNormalise = true;  // the head's experts renormalise whatever the trunk does
  run_feed_forward(pass, layer, config_.layers, kAlwaysNormalise);
  form_.write(pass, layer, SubBlock::kFeedForward);
  return form_.finish_head(pass);
}

TensorView MtpHead::draft_logits(TensorView output) {
  const DraftOutput& o = weights_.head->output;
  const TensorView all = activations_.logits(output.rows);
  const TensorView out = make_view(all.data, DType::kF32, output.rows, o.head->out());
  const LinearParams::Target target{o.head.get(), out, {}};
  ops_.linear({.x = output_input(output), .targets = {&target, 1}});
  return out;
}

TensorView MtpHead::coarse_scores(TensorView input) {
  const LinearHandle& shortlist = weights_.head->output.shortlist;
  MERERUN_CHECK(shortlist != nullptr && input.rows == 1, "one row, and a shortlist");
  const TensorView out = make_view(activations_.logits(1).data, DType::kF32, 1, shortlist->out());
  const LinearParams::Target target{shortlist.get(), out, {}};
  ops_.linear({.x = input, .targets = {&target, 1}});
  return out;
}

std::vector<float> MtpHead::exact_scores(TensorView input, std::span<const std::int32_t> rows) {
  const LinearHandle& head = weights_.head->output.head;
  const int n = static_cast<int>(rows.size());
  const TensorView ids = make_view(activations_.ids(n).data, DType::kI32, 1, n);
  const TensorView scratch = make_view(activations_.logits(1).data, DType::kF32, 1, head->out());
  const TensorView out = make_view(activations_.pair(1).data, DType::kF32, 1, n);
  ops_.upload(ids.data, rows.data(), rows.size_bytes());
  ops_.selected_rows({.x = input, .weight = head.get(), .rows = ids, .scratch = scratch, .out = out});
  std::vector<float> scores(rows.size());
  ops_.download(scores.data(), out.data, scores.size() * sizeof(float));
  return scores;
}

std::vector<TokenId> MtpHead::argmax_tokens(TensorView logits) {
  const DraftOutput& o = weights_.head->output;
  const TensorView ids = activations_.ids(logits.rows);
  ops_.argmax_rows({.logits = logits.col_range(0, o.rows), .ids = ids});
  std::vector<TokenId> tokens(static_cast<std::size_t>(logits.rows));
  ops_.download(tokens.data(), ids.data, tokens.size() * sizeof(TokenId));
  if (o.vocabulary) {
    for (TokenId& id : tokens)
      if (id >= 0) id = o.vocabulary->compact_id_to_token(id);
  }
  return tokens;
}

}  // namespace mererun
