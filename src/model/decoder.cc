#include "model/decoder.h"

#include <fmt/format.h>

#include "base/error.h"

namespace mererun {

Decoder::Decoder(Ops& ops, const ModelConfig& config, const ModelWeights& weights,
                 const Activations& activations, RopeTable& rope)
    : ops_(ops), config_(config), weights_(weights), activations_(activations), rope_(rope) {}

void Decoder::begin(std::span<const TokenId> ids, std::span<const PassSegment> segments) {
  const int rows = static_cast<int>(ids.size());
  if (rows < 1 || rows > activations_.max_rows()) {
    fail_expected(ErrorCode::kInvalidArgument, "rows of a pass",
                  fmt::format("1..{}", activations_.max_rows()), fmt::format("{}", rows));
  }
  for (const TokenId id : ids) {
    if (id < 0 || id >= config_.vocabulary) {
      fail_expected(ErrorCode::kInvalidArgument, "token id", fmt::format("0..{}", config_.vocabulary - 1),
                    fmt::format("{}", id));
    }
  }
  positions_.clear();
  int next_row = 0;
  for (const PassSegment& s : segments) {
    MERERUN_CHECK(s.first_row == next_row && s.rows > 0, "segments cover the rows in order");
    s.state->require_valid();
    next_row += s.rows;
    const int first = s.state->length();
    rope_.ensure(first + s.rows);
    for (int r = 0; r < s.rows; ++r) positions_.push_back(first + r);
    if (s.transaction == nullptr) s.state->kv().reserve(s.rows);
  }
  MERERUN_CHECK(next_row == rows, "segments cover every row");
  ops_.upload(activations_.ids(rows).data, ids.data(), ids.size_bytes());
  ops_.upload(activations_.positions(rows).data, positions_.data(), positions_.size() * sizeof(std::int32_t));
}

void Decoder::run_layers(const PassContext& pass, std::span<const PassSegment> segments) {
  int attention_index = 0;
  int delta_index = 0;
  for (int i = 0; i < config_.layers; ++i) {
    const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(i)];
    run_norm(pass, layer.input_norm);
    if (const auto* attention = std::get_if<AttentionWeights>(&layer.mixer)) {
      attention_segments_.clear();
      for (const PassSegment& s : segments)
        attention_segments_.push_back({s.first_row, s.rows, s.state->kv().layer(attention_index)});
      run_attention(pass, *attention, attention_segments_);
      ++attention_index;
    } else {
      delta_segments_.clear();
      logs_.clear();
      logs_.reserve(segments.size());  // addresses below must stay
      for (const PassSegment& s : segments) {
        const DeltaLog* log = nullptr;
        if (s.transaction != nullptr) log = &logs_.emplace_back(s.transaction->layer(delta_index));
        delta_segments_.push_back({s.first_row, s.rows, s.state->recurrent().delta(delta_index),
                                   s.state->recurrent().window(delta_index), log});
      }
      run_delta_net(pass, std::get<DeltaNetWeights>(layer.mixer), delta_segments_);
      ++delta_index;
    }
    run_feed_forward(pass, layer, i, config_.norm_topk_prob);
    if (hooks_ != nullptr && hooks_->residual) hooks_->residual(i, activations_.residual(pass.rows));
  }
}

void Decoder::finish(std::span<const PassSegment> segments, TensorView hidden) {
  for (const PassSegment& s : segments) {
    if (s.transaction != nullptr) continue;
    const TensorView last = s.state->last_hidden();
    ops_.copy(last.data, hidden.row<float>(s.first_row + s.rows - 1),
              static_cast<std::size_t>(last.cols) * sizeof(float));
    s.state->kv().set_length(s.state->length() + s.rows);
    s.state->end_direct_pass();
  }
}

TensorView Decoder::forward(std::span<const TokenId> ids, std::span<const PassSegment> segments) {
  begin(ids, segments);
  const int rows = static_cast<int>(ids.size());
  const PassContext pass{ops_, config_, activations_, rope_.view(), rows, hooks_};
  for (const PassSegment& s : segments)
    if (s.transaction == nullptr) s.state->begin_direct_pass();

  const TensorView residual = activations_.residual(rows);
  ops_.embed_rows({.ids = activations_.ids(rows), .weight = weights_.embed.get(), .out = residual});
  if (hooks_ != nullptr && hooks_->residual) hooks_->residual(-1, residual);
  run_layers(pass, segments);
  const TensorView hidden = activations_.hidden(rows);
  ops_.rms_norm({.x = residual,
                 .weight = weights_.final_norm.view,
                 .eps = static_cast<float>(config_.rms_eps),
                 .out = hidden});
  finish(segments, hidden);
  return hidden;
}

TensorView Decoder::logits(TensorView hidden) {
  const TensorView out = activations_.logits(hidden.rows);
  const LinearParams::Target target{weights_.lm_head.get(), out, {}};
  ops_.linear({.x = hidden, .targets = {&target, 1}});
  return out;
}

}  // namespace mererun
