#pragma once

#include "device/buffer.h"
#include "kernels/cuda/affine_view.h"
#include "kernels/cuda/dense_linear.h"
#include "kernels/linear.h"
#include "tensor/linear_source.h"

namespace mererun::cuda {

/// A linear weight on the GPU: affine layers repacked for streaming, dense ones as they are stored.
class CudaWeight final : public LinearWeight {
 public:
  CudaWeight(const LinearSource& source, Buffer memory, const AffineView& affine)
      : LinearWeight(source.experts, source.out, source.in), memory_(std::move(memory)), affine_(affine) {}
  CudaWeight(const LinearSource& source, Buffer memory, const DenseView& dense)
      : LinearWeight(source.experts, source.out, source.in), memory_(std::move(memory)), dense_(dense) {}

  std::size_t owned_bytes() const override { return memory_.size_bytes(); }
  bool is_affine() const { return affine_.records != nullptr; }
  const AffineView& affine() const { return affine_; }
  const DenseView& dense() const { return dense_; }

 private:
  Buffer memory_;
  AffineView affine_;
  DenseView dense_;
};

/// An embedding matrix on the GPU, as the checkpoint stores it.
class CudaEmbedding final : public LinearWeight {
 public:
  /// `stored` has the device's pointers into `memory`.
  CudaEmbedding(const LinearSource& stored, Buffer memory)
      : LinearWeight(stored.experts, stored.out, stored.in), memory_(std::move(memory)), stored_(stored) {}

  std::size_t owned_bytes() const override { return memory_.size_bytes(); }
  const LinearSource& stored() const { return stored_; }

 private:
  Buffer memory_;
  LinearSource stored_;
};

}  // namespace mererun::cuda
