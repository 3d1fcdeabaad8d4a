#include "cache/verify_transaction.h"

#include <fmt/format.h>

#include "base/error.h"

namespace mererun {
namespace {

struct LogLayout {
  std::size_t inputs, k, u, alpha;  // floats per row
  std::size_t row() const { return inputs + k + u + alpha; }
};

LogLayout layout_of(const DeltaShape& s) {
  const auto size = [](int n) { return static_cast<std::size_t>(n); };
  return {size(s.conv_channels()), size(s.key_width()), size(s.value_width()), size(s.value_heads)};
}

/// Floats a row of the n-gram layer's log.
std::size_t ngram_floats(const StateGeometry& g) {
  return g.ngram_past > 0 ? static_cast<std::size_t>(g.ngram_cols) : 0;
}

}  // namespace

std::size_t VerifyLog::size_bytes(const StateGeometry& g, int max_width) {
  return (layout_of(g.delta).row() * static_cast<std::size_t>(g.delta_layers) + ngram_floats(g)) *
         static_cast<std::size_t>(max_width) * sizeof(float);
}

VerifyLog::VerifyLog(Ops& ops, const StateGeometry& geometry, int max_width)
    : geometry_(geometry), max_width_(max_width), buffer_(ops.allocate(size_bytes(geometry, max_width))) {}

DeltaLog VerifyLog::layer(int index, int width) const {
  MERERUN_CHECK(index >= 0 && index < geometry_.delta_layers && width <= max_width_,
                "layer and width inside the log");
  const LogLayout l = layout_of(geometry_.delta);
  const auto w = static_cast<std::size_t>(max_width_);
  float* base = buffer_.as<float>() + static_cast<std::size_t>(index) * l.row() * w;
  const auto view = [&](std::size_t offset, std::size_t cols) {
    return make_view(base + offset * w, DType::kF32, width, static_cast<int>(cols));
  };
  return {view(0, l.inputs), view(l.inputs, l.k), view(l.inputs + l.k, l.u),
          view(l.inputs + l.k + l.u, l.alpha)};
}

TensorView VerifyLog::ngram_inputs(int width) const {
  MERERUN_CHECK(geometry_.ngram_past > 0 && width <= max_width_, "an n-gram layer, and width inside the log");
  const std::size_t rows =
      static_cast<std::size_t>(geometry_.delta_layers) * static_cast<std::size_t>(max_width_);
  return make_view(buffer_.as<float>() + layout_of(geometry_.delta).row() * rows, DType::kF32, width,
                   geometry_.ngram_cols);
}

VerifyTransaction::VerifyTransaction(SequenceState& state, VerifyLog& log, int width)
    : state_(state), log_(log), width_(width) {
  state.require_valid();
  if (width < 1 || width > log.max_width()) {
    fail_expected(ErrorCode::kInvalidArgument, "verify width", fmt::format("1..{}", log.max_width()),
                  fmt::format("{}", width));
  }
  state.kv().reserve(width);
}

void VerifyTransaction::commit(int rows, TensorView hidden) {
  MERERUN_CHECK(!committed_ && rows >= 0 && rows <= width_, "a transaction commits once, at most its width");
  committed_ = true;
  if (rows == 0) return;
  Ops& ops = state_.ops();
  const DeltaShape& shape = state_.geometry().delta;
  state_.begin_direct_pass();  // a failing replay leaves layers at different positions
  for (int l = 0; l < state_.geometry().delta_layers; ++l) {
    const DeltaLog log = layer(l);
    ops.delta_replay({.shape = shape,
                      .k = log.k.row_range(0, rows),
                      .u = log.u.row_range(0, rows),
                      .alpha = log.alpha.row_range(0, rows),
                      .state = state_.recurrent().delta(l)});
    ops.advance_window({.window = state_.recurrent().window(l), .inputs = log.inputs.row_range(0, rows)});
  }
  if (state_.geometry().ngram_past > 0) {
    ops.advance_window(
        {.window = state_.recurrent().ngram_window(), .inputs = ngram_inputs().row_range(0, rows)});
  }
  if (state_.geometry().context_tokens > 0) {
    MERERUN_CHECK(static_cast<int>(tokens_.size()) == width_, "the pass noted its tokens");
    state_.push_context(std::span(tokens_).first(static_cast<std::size_t>(rows)));
  }
  ops.copy(state_.last_hidden().data, hidden.row<float>(rows - 1),
           static_cast<std::size_t>(state_.geometry().hidden) * sizeof(float));
  state_.kv().set_length(state_.kv().length() + rows);
  state_.end_direct_pass();
}

}  // namespace mererun
