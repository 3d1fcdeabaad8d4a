#pragma once

#include <functional>
#include <memory>

#include "device/buffer.h"
#include "device/cuda/cuda_stream.h"
#include "kernels/cuda/cuda_weight.h"
#include "kernels/cuda/launch.h"

namespace mererun::cuda {

/// Brings weights of the checkpoint to the GPU, through two page-locked halves that fill and empty in turn.
///
/// Thread-safety: one thread at a time.
class WeightUpload {
 public:
  WeightUpload(const LaunchContext& context, const Stream& stream) : context_(context), stream_(stream) {}

  /// Converts a weight; returns when its bytes have been read. Errors: kOutOfMemory, kDevice.
  std::shared_ptr<const CudaWeight> convert(const LinearSource& source);
  /// Copies a matrix that only embed_rows reads. Errors: as above.
  std::shared_ptr<const CudaEmbedding> copy_embedding(const LinearSource& source);

 private:
  struct Half {
    Buffer host, device;
    std::unique_ptr<Event> done;
  };
  /// The half whose last copy is finished.
  Half& next_half();
  /// Fills `bytes` of a half by `fill(host)`, sends them to `device` (null: the half's own device memory).
  void send(Half& half, std::size_t bytes, void* device, const std::function<void(unsigned char*)>& fill);
  void copy_bytes(const void* from, std::size_t bytes, unsigned char* to);
  void pack_tiles(const LinearSource& source, const AffineView& view, unsigned char* records,
                  std::int64_t first, int tiles);

  const LaunchContext& context_;
  const Stream& stream_;
  Half halves_[2];
  int turn_ = 0;
};

}  // namespace mererun::cuda
