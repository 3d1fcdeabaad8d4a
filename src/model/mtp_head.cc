#include "model/mtp_head.h"

#include <fmt/format.h>

#include "base/error.h"

namespace mererun {

MtpHead::MtpHead(Ops& ops, const ModelConfig& config, const ModelWeights& weights,
                 const Activations& activations, RopeTable& rope)
    : ops_(ops), config_(config), weights_(weights), activations_(activations), rope_(rope) {
  MERERUN_CHECK(weights.head.has_value(), "a draft head is loaded");
}

TensorView MtpHead::forward(TensorView hidden, std::span<const TokenId> tokens, int first_slot, int base,
                            KvCache& cache) {
  const int rows = static_cast<int>(tokens.size());
  if (rows < 1 || rows > activations_.max_rows()) {
    fail_expected(ErrorCode::kInvalidArgument, "rows of a draft pass",
                  fmt::format("1..{}", activations_.max_rows()), fmt::format("{}", rows));
  }
  MERERUN_CHECK(hidden.rows == rows && hidden.cols == config_.hidden, "one hidden row per token");
  const DraftHeadWeights& w = *weights_.head;
  const auto eps = static_cast<float>(config_.rms_eps);

  cache.reserve(first_slot + rows - cache.length());
  rope_.ensure(base + first_slot + rows);
  slots_.clear();
  for (int r = 0; r < rows; ++r) slots_.push_back(first_slot + r);
  const TensorView ids = activations_.ids(rows);
  ops_.upload(ids.data, tokens.data(), tokens.size_bytes());
  ops_.upload(activations_.positions(rows).data, slots_.data(), slots_.size() * sizeof(std::int32_t));

  const TensorView residual = activations_.residual(rows);
  const TensorView pair = activations_.pair(rows);
  // The embedding half comes first: columns 0..H-1 of fc act on it.
  ops_.rms_norm({.x = hidden,
                 .weight = w.pre_fc_norm_hidden.view,
                 .eps = eps,
                 .out = pair.col_range(config_.hidden, config_.hidden)});
  ops_.embed_rows({.ids = ids, .weight = weights_.embed.get(), .out = residual});
  ops_.rms_norm({.x = residual,
                 .weight = w.pre_fc_norm_embedding.view,
                 .eps = eps,
                 .out = pair.col_range(0, config_.hidden)});
  const LinearParams::Target fc{w.fc.get(), residual, {}};
  ops_.linear({.x = pair, .targets = {&fc, 1}});

  // The cache counts slots; seen from slot 0 the rotation starts at `base`.
  RopeView rope = rope_.view();
  rope.cos = rope.cos.row_range(base, rope.cos.rows - base);
  rope.sin = rope.sin.row_range(base, rope.sin.rows - base);
  const PassContext pass{ops_, config_, activations_, rope, rows, hooks_};
  run_norm(pass, w.layer.input_norm);
  const AttentionSegment segment{0, rows, cache.layer(0)};
  run_attention(pass, std::get<AttentionWeights>(w.layer.mixer), {&segment, 1});
  constexpr bool kAlwaysNormalise = true;  // the head's experts renormalise whatever the trunk does
  run_feed_forward(pass, w.layer, config_.layers, kAlwaysNormalise);

  const TensorView out = activations_.hidden(rows);
  ops_.rms_norm({.x = residual, .weight = w.norm.view, .eps = eps, .out = out});
  return out;
}

TensorView MtpHead::draft_logits(TensorView output) {
  const DraftOutput& o = weights_.head->output;
  const TensorView all = activations_.logits(output.rows);
  const TensorView out = make_view(all.data, DType::kF32, output.rows, o.head->out());
  const LinearParams::Target target{o.head.get(), out, {}};
  ops_.linear({.x = output, .targets = {&target, 1}});
  return out;
}

TensorView MtpHead::coarse_scores(TensorView output) {
  const LinearHandle& shortlist = weights_.head->output.shortlist;
  MERERUN_CHECK(shortlist != nullptr && output.rows == 1, "one row, and a shortlist");
  const TensorView out = make_view(activations_.logits(1).data, DType::kF32, 1, shortlist->out());
  const LinearParams::Target target{shortlist.get(), out, {}};
  ops_.linear({.x = output, .targets = {&target, 1}});
  return out;
}

std::vector<float> MtpHead::exact_scores(TensorView output, std::span<const std::int32_t> rows) {
  const LinearHandle& head = weights_.head->output.head;
  const int n = static_cast<int>(rows.size());
  const TensorView ids = make_view(activations_.ids(n).data, DType::kI32, 1, n);
  const TensorView scratch = make_view(activations_.logits(1).data, DType::kF32, 1, head->out());
  const TensorView out = make_view(activations_.pair(1).data, DType::kF32, 1, n);
  ops_.upload(ids.data, rows.data(), rows.size_bytes());
  ops_.selected_rows({.x = output, .weight = head.get(), .rows = ids, .scratch = scratch, .out = out});
  std::vector<float> scores(rows.size());
  ops_.download(scores.data(), out.data, scores.size() * sizeof(float));
  return scores;
}

std::vector<TokenId> MtpHead::argmax_tokens(TensorView output) {
  const DraftOutput& o = weights_.head->output;
  const TensorView logits = draft_logits(output);
  const TensorView ids = activations_.ids(output.rows);
  ops_.argmax_rows({.logits = logits.col_range(0, o.rows), .ids = ids});
  std::vector<TokenId> tokens(static_cast<std::size_t>(output.rows));
  ops_.download(tokens.data(), ids.data, tokens.size() * sizeof(TokenId));
  if (o.vocabulary) {
    for (TokenId& id : tokens)
      if (id >= 0) id = o.vocabulary->compact_id_to_token(id);
  }
  return tokens;
}

}  // namespace mererun
