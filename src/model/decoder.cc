#include "model/decoder.h"

#include <fmt/format.h>

#include "base/error.h"

namespace mererun {

Decoder::Decoder(Ops& ops, const ModelConfig& config, const ModelWeights& weights,
                 const Activations& activations, RopeTable& rope, ResidualForm& form)
    : ops_(ops), config_(config), weights_(weights), activations_(activations), rope_(rope), form_(form) {}

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

void Decoder::run_mixer(const PassContext& pass, const LayerWeights& layer, int index,
                        std::span<const PassSegment> segments) {
  if (std::holds_alternative<AttentionWeights>(layer.mixer)) {
    attention_segments_.clear();
    for (const PassSegment& s : segments) {
      attention_segments_.push_back(
          {s.first_row, s.rows, s.state->length(), s.state->kv().layer(attention_index_)});
    }
    form_.attend(pass, layer, index, attention_segments_);
    ++attention_index_;
    return;
  }
  delta_segments_.clear();
  logs_.clear();
  logs_.reserve(segments.size());  // addresses below must stay
  for (const PassSegment& s : segments) {
    const DeltaLog* log = nullptr;
    if (s.transaction != nullptr) log = &logs_.emplace_back(s.transaction->layer(delta_index_));
    delta_segments_.push_back({s.first_row, s.rows, s.state->recurrent().delta(delta_index_),
                               s.state->recurrent().window(delta_index_), log});
  }
  run_delta_net(pass, std::get<DeltaNetWeights>(layer.mixer), delta_segments_);
  ++delta_index_;
}

void Decoder::run_layers(const PassContext& pass, std::span<const PassSegment> segments) {
  using Sublayer = ResidualForm::Sublayer;
  attention_index_ = delta_index_ = 0;
  for (int i = 0; i < config_.layers; ++i) {
    const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(i)];
    form_.enter_layer(pass, layer, segments);
    form_.read(pass, layer, Sublayer::kMixer);
    run_mixer(pass, layer, i, segments);
    form_.write(pass, layer, Sublayer::kMixer);
    form_.read(pass, layer, Sublayer::kFeedForward);
    run_feed_forward(pass, layer, i, config_.norm_topk_prob);
    form_.write(pass, layer, Sublayer::kFeedForward);
    if (hooks_ != nullptr && hooks_->residual) hooks_->residual(i, activations_.residual(pass.rows));
  }
}

void Decoder::finish(std::span<const TokenId> ids, std::span<const PassSegment> segments, TensorView hidden) {
  for (const PassSegment& s : segments) {
    const auto own = ids.subspan(static_cast<std::size_t>(s.first_row), static_cast<std::size_t>(s.rows));
    if (s.transaction != nullptr) {
      s.transaction->note_tokens(own);
      continue;
    }
    const TensorView last = s.state->last_hidden();
    ops_.copy(last.data, hidden.row<float>(s.first_row + s.rows - 1),
              static_cast<std::size_t>(last.cols) * sizeof(float));
    s.state->kv().set_length(s.state->length() + s.rows);
    s.state->push_context(own);
    s.state->end_direct_pass();
  }
}

TensorView Decoder::forward(std::span<const TokenId> ids, std::span<const PassSegment> segments) {
  begin(ids, segments);
  form_.begin(ids, segments);
  const int rows = static_cast<int>(ids.size());
  const PassContext pass{ops_, config_, activations_, rope_.view(), rows, hooks_};
  for (const PassSegment& s : segments)
    if (s.transaction == nullptr) s.state->begin_direct_pass();

  form_.embed(pass);
  if (hooks_ != nullptr && hooks_->residual) hooks_->residual(-1, activations_.residual(rows));
  run_layers(pass, segments);
  const TensorView hidden = form_.finish(pass);
  finish(ids, segments, hidden);
  return hidden;
}

TensorView Decoder::logits(TensorView hidden) {
  const TensorView out = activations_.logits(hidden.rows);
  const LinearParams::Target target{weights_.lm_head.get(), out, {}};
  ops_.linear({.x = form_.output_input(hidden), .targets = {&target, 1}});
  return out;
}

}  // namespace mererun
