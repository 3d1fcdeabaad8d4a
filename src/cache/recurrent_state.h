#pragma once

#include "cache/state_geometry.h"
#include "device/buffer.h"
#include "kernels/ops.h"
#include "tensor/tensor_view.h"

namespace mererun {

/// Delta state and conv window of every Gated DeltaNet layer, and the window of the n-gram layer where there
/// is one, at one position, in one allocation.
///
/// Thread-safety: one thread at a time.
class RecurrentState {
 public:
  /// All zeros: the state before position 0.
  RecurrentState(Ops& ops, const StateGeometry& geometry);

  RecurrentState(RecurrentState&&) noexcept = default;
  RecurrentState& operator=(RecurrentState&&) noexcept = default;

  TensorView delta(int layer) const;   // [Nv * Dk, Dv] f32
  TensorView window(int layer) const;  // [K - 1, C] f32, oldest row first

  TensorView ngram_window() const;  // [ngram_past, ngram_cols] f32, oldest row first

  void copy_from(const RecurrentState& other);
  void clear();
  const Buffer& bytes() const { return buffer_; }

  static std::size_t size_bytes(const StateGeometry& geometry);

 private:
  Ops* ops_;
  StateGeometry geometry_;
  Buffer buffer_;
};

}  // namespace mererun
