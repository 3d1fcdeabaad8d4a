#include "cache/recurrent_state.h"

#include "base/error.h"

namespace mererun {
namespace {

std::size_t delta_floats(const DeltaShape& s) {
  return static_cast<std::size_t>(s.value_heads) * static_cast<std::size_t>(s.key_dim) *
         static_cast<std::size_t>(s.value_dim);
}

std::size_t window_floats(const DeltaShape& s) {
  return static_cast<std::size_t>(s.conv_taps - 1) * static_cast<std::size_t>(s.conv_channels());
}

std::size_t delta_layer_floats(const StateGeometry& g) {
  return static_cast<std::size_t>(g.delta_layers) * (delta_floats(g.delta) + window_floats(g.delta));
}

std::size_t ngram_floats(const StateGeometry& g) {
  return static_cast<std::size_t>(g.ngram_past) * static_cast<std::size_t>(g.ngram_cols);
}

}  // namespace

std::size_t RecurrentState::size_bytes(const StateGeometry& g) {
  return (delta_layer_floats(g) + ngram_floats(g)) * sizeof(float);
}

RecurrentState::RecurrentState(Ops& ops, const StateGeometry& geometry)
    : ops_(&ops), geometry_(geometry), buffer_(ops.allocate(size_bytes(geometry))) {}

TensorView RecurrentState::delta(int layer) const {
  MERERUN_CHECK(layer >= 0 && layer < geometry_.delta_layers, "layer inside the state");
  const DeltaShape& s = geometry_.delta;
  float* base = buffer_.as<float>() + static_cast<std::size_t>(layer) * delta_floats(s);
  return make_view(base, DType::kF32, s.value_heads * s.key_dim, s.value_dim);
}

TensorView RecurrentState::window(int layer) const {
  MERERUN_CHECK(layer >= 0 && layer < geometry_.delta_layers, "layer inside the state");
  const DeltaShape& s = geometry_.delta;
  float* base = buffer_.as<float>() + static_cast<std::size_t>(geometry_.delta_layers) * delta_floats(s) +
                static_cast<std::size_t>(layer) * window_floats(s);
  return make_view(base, DType::kF32, s.conv_taps - 1, s.conv_channels());
}

TensorView RecurrentState::ngram_window() const {
  MERERUN_CHECK(geometry_.ngram_past > 0, "the state has an n-gram layer");
  return make_view(buffer_.as<float>() + delta_layer_floats(geometry_), DType::kF32, geometry_.ngram_past,
                   geometry_.ngram_cols);
}

void RecurrentState::copy_from(const RecurrentState& other) {
  MERERUN_CHECK(buffer_.size_bytes() == other.buffer_.size_bytes(), "states of one geometry");
  ops_->copy(buffer_.data(), other.buffer_.data(), buffer_.size_bytes());
}

void RecurrentState::clear() { ops_->zero(buffer_.data(), buffer_.size_bytes()); }

}  // namespace mererun
