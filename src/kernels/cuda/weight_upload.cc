#include "kernels/cuda/weight_upload.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"
#include "kernels/cuda/pack_affine.h"
#include "kernels/cuda/weight_layout.h"

namespace mererun::cuda {

namespace {

constexpr std::size_t kHalfBytes = kUploadBytes / 2;

/// Where a row of an array begins.
const unsigned char* rows_at(const void* array, std::int64_t row, std::int64_t row_bytes) {
  return static_cast<const unsigned char*>(array) + row * row_bytes;
}

}  // namespace

WeightUpload::Half& WeightUpload::next_half() {
  Half& half = halves_[turn_];
  turn_ = 1 - turn_;
  if (half.done == nullptr) {
    half.host = allocate_pinned(kHalfBytes);
    half.device = allocate_device(kHalfBytes);
    half.done = std::make_unique<Event>();
  }
  half.done->synchronize();
  return half;
}

void WeightUpload::send(Half& half, std::size_t bytes, void* device,
                        const std::function<void(unsigned char*)>& fill) {
  fill(half.host.as<unsigned char>());
  check(cudaMemcpyAsync(device == nullptr ? half.device.data() : device, half.host.data(), bytes,
                        cudaMemcpyHostToDevice, stream_.get()),
        "cuda weight upload");
}

void WeightUpload::copy_bytes(const void* from, std::size_t bytes, unsigned char* to) {
  for (std::size_t at = 0; at < bytes; at += kHalfBytes) {
    const std::size_t count = std::min(kHalfBytes, bytes - at);
    Half& half = next_half();
    send(half, count, to + at, [&](unsigned char* host) {
      std::memcpy(host, static_cast<const unsigned char*>(from) + at, count);
    });
    half.done->record(stream_);
  }
}

/// Tiles [first, first + tiles) counted over all experts.
void WeightUpload::pack_tiles(const LinearSource& s, const AffineView& view, unsigned char* records,
                              std::int64_t first, int tiles) {
  const auto slots = static_cast<std::size_t>(tiles) * kTileRows;
  const auto row_bytes = static_cast<std::size_t>(s.weight_row_bytes());
  const auto side_bytes = static_cast<std::size_t>(s.scale_row_bytes());
  const std::size_t scales_at = padded_bytes(slots * row_bytes);
  const std::size_t biases_at = scales_at + padded_bytes(slots * side_bytes);
  Half& half = next_half();
  send(half, biases_at + slots * side_bytes, nullptr, [&](unsigned char* host) {
    for (int i = 0; i < tiles; ++i) {
      const std::int64_t expert = (first + i) / view.tiles();
      const auto row = static_cast<int>((first + i) % view.tiles()) * kTileRows;
      const auto count = static_cast<std::size_t>(std::min(kTileRows, s.out - row));
      const std::int64_t stored = expert * s.rows_between_experts() + row;
      const auto place = [&](const void* array, std::size_t bytes, std::size_t at) {
        unsigned char* to = host + at + static_cast<std::size_t>(i) * kTileRows * bytes;
        std::memcpy(to, rows_at(array, stored, static_cast<std::int64_t>(bytes)), count * bytes);
        std::memset(to + count * bytes, 0, (kTileRows - count) * bytes);
      };
      place(s.weight, row_bytes, 0);
      place(s.scales, side_bytes, scales_at);
      place(s.biases, side_bytes, biases_at);
    }
  });
  StoredTiles from;
  from.weight = half.device.as<std::uint8_t>();
  from.scales = from.weight + scales_at;
  from.biases = from.weight + biases_at;
  from.tiles = tiles;
  from.bits = s.bits;
  from.dtype = s.dtype;
  run_pack_affine(context_, from, view, records + first * view.tile_bytes());
  half.done->record(stream_);
}

std::shared_ptr<const CudaWeight> WeightUpload::convert(const LinearSource& s) {
  if (s.format == WeightFormat::kDense) {
    const auto expert_bytes =
        static_cast<std::size_t>(s.out) * static_cast<std::size_t>(s.weight_row_bytes());
    Buffer memory = allocate_device(linear_bytes(s));
    for (int e = 0; e < s.experts; ++e) {
      copy_bytes(rows_at(s.weight, e * s.rows_between_experts(), s.weight_row_bytes()), expert_bytes,
                 memory.as<unsigned char>() + static_cast<std::size_t>(e) * expert_bytes);
    }
    const DenseView view{memory.as<std::uint8_t>(), s.dtype, s.experts, s.out, s.in};
    return std::make_shared<CudaWeight>(s, std::move(memory), view);
  }
  AffineView view = affine_layout(s);
  Buffer memory = allocate_device(linear_bytes(s));
  const auto tile_bytes =
      static_cast<std::size_t>(kTileRows * (s.weight_row_bytes() + 2 * s.scale_row_bytes()));
  if (tile_bytes + 3 * kAlignment > kHalfBytes) {
    fail_expected(ErrorCode::kUnsupported, s.name, "16 rows of at most 32 MiB", std::to_string(tile_bytes));
  }
  const auto per_send = static_cast<std::int64_t>((kHalfBytes - 3 * kAlignment) / tile_bytes);
  const std::int64_t all = static_cast<std::int64_t>(s.experts) * view.tiles();
  for (std::int64_t first = 0; first < all; first += per_send) {
    pack_tiles(s, view, memory.as<unsigned char>(), first, static_cast<int>(std::min(per_send, all - first)));
  }
  view.records = memory.as<std::uint8_t>();
  return std::make_shared<CudaWeight>(s, std::move(memory), view);
}

std::shared_ptr<const CudaEmbedding> WeightUpload::copy_embedding(const LinearSource& s) {
  const auto rows = static_cast<std::size_t>(s.out);
  const std::size_t weight_bytes = rows * static_cast<std::size_t>(s.weight_row_bytes());
  const std::size_t side_bytes = rows * static_cast<std::size_t>(s.scale_row_bytes());
  const std::size_t scales_at = padded_bytes(weight_bytes);
  const std::size_t biases_at = scales_at + padded_bytes(side_bytes);
  Buffer memory = allocate_device(embedding_bytes(s));
  auto* base = memory.as<unsigned char>();
  LinearSource stored = s;
  copy_bytes(s.weight, weight_bytes, base);
  stored.weight = base;
  if (s.format == WeightFormat::kAffine) {
    copy_bytes(s.scales, side_bytes, base + scales_at);
    copy_bytes(s.biases, side_bytes, base + biases_at);
    stored.scales = base + scales_at;
    stored.biases = base + biases_at;
  }
  return std::make_shared<CudaEmbedding>(stored, std::move(memory));
}

}  // namespace mererun::cuda
