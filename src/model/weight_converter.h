#pragma once

#include <span>
#include <vector>

#include "kernels/ops.h"
#include "model/weights.h"

namespace mererun {

/// Converts host weights for one backend and counts what the backend holds. Internal to model/.
class WeightConverter {
 public:
  explicit WeightConverter(Ops& ops) : ops_(ops) {}

  LinearHandle linear(const LinearSource& source) {
    read_ += source.bytes();
    return count(ops_.prepare_linear(source));
  }
  LinearHandle embedding(const LinearSource& source) {
    read_ += source.bytes();
    return count(ops_.prepare_embedding(source));
  }
  DeviceTensor vector(const std::vector<float>& values) {
    return matrix(1, static_cast<int>(values.size()), values);
  }
  DeviceTensor matrix(int rows, int cols, std::span<const float> values) {
    owned_ += values.size_bytes();
    return upload_f32(ops_, rows, cols, values);
  }
  /// [C, K] -> [K, C]: one tap's channels become contiguous.
  DeviceTensor conv(const std::vector<float>& values, int channels, int taps);

  std::size_t owned_bytes() const { return owned_; }
  /// Bytes of the checkpoint converted so far.
  std::int64_t read_bytes() const { return read_; }

 private:
  LinearHandle count(LinearHandle handle) {
    owned_ += handle->owned_bytes();
    return handle;
  }

  Ops& ops_;
  std::size_t owned_ = 0;
  std::int64_t read_ = 0;
};

}  // namespace mererun
