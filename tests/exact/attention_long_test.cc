// Attention alone over long caches: every row of a wide pass has the bits of the row alone, on both sides of
// page, tile and segment edges up to 65,536 keys, for every query factor that is served.

#include <gtest/gtest.h>

#include <cmath>

#include "cache/kv_cache.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

constexpr int kKeys = 65536 + 48;
constexpr int kHeadDim = 64;

struct Random {
  std::uint64_t x;
  std::uint32_t next() {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<std::uint32_t>(x >> 33);
  }
};

/// A cache of one layer and one KV head with random codes at every position.
class LongAttention : public ::testing::TestWithParam<int> {
 protected:
  LongAttention()
      : ops_(testing::make_ops("cpu")), pool_(KvPagePool::create(*ops_, {1, 1, kHeadDim})), cache_(pool_) {
    cache_.reserve(kKeys);
    cache_.set_length(kKeys);
    Random random{11};
    const KvLayerView view = cache_.layer(0);
    for (int p = 0; p < kKeys; ++p) {
      std::byte* page = view.pages[p / kKvPagePositions];
      const int slot = p % kKvPagePositions;
      for (const auto& [codes, scales] :
           {std::pair{view.key_codes, view.key_scales}, {view.value_codes, view.value_scales}}) {
        auto* row = reinterpret_cast<std::int16_t*>(page + codes) + slot * kHeadDim;
        for (int d = 0; d < kHeadDim; ++d) row[d] = static_cast<std::int16_t>(random.next() % 65025) - 32512;
        reinterpret_cast<float*>(page + scales)[slot] =
            1e-5f + 1e-9f * static_cast<float>(random.next() % 20000);
      }
    }
  }

  /// Attention output of rows at first .. first + rows - 1, each query derived from its position.
  std::vector<float> attend(int first, int rows) {
    const int heads = GetParam();
    std::vector<float> q(static_cast<std::size_t>(rows * heads * kHeadDim)), gate(2 * q.size());
    std::vector<std::int32_t> positions;
    for (int r = 0; r < rows; ++r) {
      Random random{static_cast<std::uint64_t>(first + r) * 77};
      positions.push_back(first + r);
      const auto at = static_cast<std::size_t>(r * heads * kHeadDim);
      for (int i = 0; i < heads * kHeadDim; ++i) {
        q[at + static_cast<std::size_t>(i)] = static_cast<float>(random.next() % 2001) * 2e-3f - 2.0f;
      }
      for (int i = 0; i < 2 * heads * kHeadDim; ++i)
        gate[2 * at + static_cast<std::size_t>(i)] = static_cast<float>(random.next() % 2001) * 2e-3f - 2.0f;
    }
    std::vector<float> out(q.size());
    ops_->attend(
        {.q = make_view(q.data(), DType::kF32, rows, heads * kHeadDim),
         .q_gate = make_view(gate.data(), DType::kF32, rows, 2 * heads * kHeadDim),
         .positions = make_view(positions.data(), DType::kI32, 1, rows),
         .cache = cache_.layer(0),
         .heads = heads,
         .scale_log2e = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(kHeadDim))),
         .out = make_view(out.data(), DType::kF32, rows, heads * kHeadDim)});
    return out;
  }

  std::unique_ptr<Ops> ops_;
  std::shared_ptr<KvPagePool> pool_;
  KvCache cache_;
};

TEST_P(LongAttention, RowsOfAWidePassHaveTheirSerialBits) {
  for (const int edge : {64, 256, 1024, 4096, 8192, 16384, 32768, 65536}) {
    for (const int width : {5, 9, 32}) {
      const int first = edge - width / 2;
      const std::vector<float> wide = attend(first, width);
      const std::size_t row = wide.size() / static_cast<std::size_t>(width);
      for (int r = 0; r < width; ++r) {
        const std::vector<float> alone = attend(first + r, 1);
        const std::span<const float> part(wide.data() + row * static_cast<std::size_t>(r), row);
        ASSERT_EQ(testing::hash_bits(part), testing::hash_bits(alone))
            << "position " << first + r << " width " << width;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Factors, LongAttention, ::testing::Values(6, 8, 12),
                         [](const auto& p) { return "Factor" + std::to_string(p.param); });

}  // namespace
}  // namespace mererun
