#include "model/mtp_head.h"

#include <fmt/format.h>

#include "base/error.h"

namespace mererun {

MtpHead::MtpHead(Ops& ops, const ModelConfig& config, const ModelWeights& weights,
                 const Activations& activations, RopeTable& rope, ResidualForm& form)
    : ops_(ops), config_(config), weights_(weights), activations_(activations), rope_(rope), form_(form) {
  MERERUN_CHECK(weights.head.has_value(), "a draft head is loaded");
}

/// The residual of rows that join hidden rows and tokens.
PassContext MtpHead::join(TensorView hidden, std::span<const TokenId> tokens, int first_slot, int base,
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
  form_.join_head(pass, hidden);
  return pass;
}

/// Keys and values of joined rows.
void MtpHead::append_rows(const PassContext& pass, int first_slot, KvCache& cache) {
  const LayerWeights& layer = weights_.head->layer;
  form_.read(pass, layer, ResidualForm::Sublayer::kMixer);
  form_.append_keys(pass, layer, {0, pass.rows, first_slot, cache.layer(0)});
}

/// The head's layer and its end on joined rows.
TensorView MtpHead::run_layer(const PassContext& pass, int first_slot, KvCache& cache) {
  using Sublayer = ResidualForm::Sublayer;
  const LayerWeights& layer = weights_.head->layer;
  form_.read(pass, layer, Sublayer::kMixer);
  const AttentionSegment segment{0, pass.rows, first_slot, cache.layer(0)};
  form_.attend(pass, layer, config_.layers, {&segment, 1});
  form_.write(pass, layer, Sublayer::kMixer);
  form_.read(pass, layer, Sublayer::kFeedForward);
  constexpr bool kAlwaysNormalise = true;  // the head's experts renormalise whatever the trunk does
  run_feed_forward(pass, layer, config_.layers, kAlwaysNormalise);
  form_.write(pass, layer, Sublayer::kFeedForward);
  return form_.finish_head(pass);
}

TensorView MtpHead::forward(TensorView hidden, std::span<const TokenId> tokens, int first_slot, int base,
                            KvCache& cache) {
  return run_layer(join(hidden, tokens, first_slot, base, cache), first_slot, cache);
}

void MtpHead::append(TensorView hidden, std::span<const TokenId> tokens, int first_slot, int base,
                     KvCache& cache) {
  append_rows(join(hidden, tokens, first_slot, base, cache), first_slot, cache);
}

TensorView MtpHead::forward_last(TensorView hidden, std::span<const TokenId> tokens, int first_slot, int base,
                                 KvCache& cache) {
  PassContext pass = join(hidden, tokens, first_slot, base, cache);
  const int earlier = pass.rows - 1;
  if (earlier > 0) {
    pass.rows = earlier;
    append_rows(pass, first_slot, cache);
    // The last row goes on alone, as row 0. Copies stay in line with the kernels; an upload would not.
    const TensorView residual = activations_.residual(earlier + 1);
    ops_.copy(residual.data, residual.row<float>(earlier),
              static_cast<std::size_t>(residual.cols) * sizeof(float));
    const TensorView positions = activations_.positions(earlier + 1);
    ops_.copy(positions.data, positions.row<std::int32_t>(0) + earlier, sizeof(std::int32_t));
  }
  pass.rows = 1;
  return run_layer(pass, first_slot + earlier, cache);
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
  const TensorView out = make_view(activations_.fc_input(1).data, DType::kF32, 1, n);
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
