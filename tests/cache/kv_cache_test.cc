// Pages, caches over them, draft histories and recurrent states: sharing, copies on write, failures.

#include <gtest/gtest.h>

#include "tests/cache/small_states.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

using testing::count_up;
using testing::SmallStates;

std::int16_t key_at(const KvCache& cache, int position) {
  const KvLayerView view = cache.layer(0);
  const std::byte* page =
      cache.share_pages()[static_cast<std::size_t>(position / 256)]->bytes.as<std::byte>();
  return reinterpret_cast<const std::int16_t*>(page + view.key_codes)[position % 256 * view.head_dim];
}

void fill(KvCache& cache, int first, int n, int id) {
  cache.reserve(n);
  for (int p = first; p < first + n; ++p) SmallStates::write_position(cache, 0, p, id);
  cache.set_length(first + n);
}

TEST(KvPagePool, APageHoldsKeysValuesAndScalesOfEveryLayer) {
  const KvGeometry g{3, 2, 8};
  EXPECT_EQ(g.page_bytes(), 3u * 2u * (2u * 256u * 8u * 2u + 2u * 256u * 4u));
}

TEST(KvPagePool, PagesComeBackZeroedAndAreCounted) {
  SmallStates s;
  auto& pool = *s.pools.trunk;
  KvPageRef page = pool.acquire();
  page->bytes.as<char>()[17] = 1;
  const void* address = page->bytes.data();
  EXPECT_EQ(pool.live_pages(), 1u);
  page.reset();
  EXPECT_EQ(pool.live_pages(), 0u);
  EXPECT_EQ(pool.free_pages(), 1u);
  page = pool.acquire();
  EXPECT_EQ(page->bytes.data(), address);
  EXPECT_EQ(page->bytes.as<char>()[17], 0);
  page.reset();
  pool.trim();
  EXPECT_EQ(pool.free_pages(), 0u);
  EXPECT_EQ(s.ops.live_bytes, 0u);
}

TEST(KvPagePool, APageMayOutliveEveryOtherReferenceToThePool) {
  SmallStates s;
  auto pool = KvPagePool::create(s.ops, {1, 1, 8});
  KvPageRef page = pool->acquire();
  pool.reset();
  page->bytes.as<char>()[0] = 1;
  page.reset();
  EXPECT_EQ(s.ops.live_bytes, 0u);
}

TEST(KvCache, ReserveAddsPagesAndLeavesTheLength) {
  SmallStates s;
  KvCache cache(s.pools.trunk);
  cache.reserve(257);
  EXPECT_EQ(cache.length(), 0);
  EXPECT_EQ(cache.layer(1).page_count, 2);
  cache.set_length(257);
  cache.reserve(255);
  EXPECT_EQ(cache.layer(0).page_count, 2);
  cache.reserve(256);
  EXPECT_EQ(cache.layer(0).page_count, 3);
  EXPECT_EQ(cache.share_pages().size(), 2u) << "a page of dead positions is nobody else's";
}

TEST(KvCache, AForkSharesPagesUntilOneOfTheTwoWrites) {
  for (const int length : {1, 100, 255, 256, 257, 512}) {
    SmallStates s;
    KvCache cache(s.pools.trunk);
    fill(cache, 0, length, 1);
    const std::size_t pages = s.pools.trunk->live_pages();
    KvCache fork = cache.fork();
    EXPECT_EQ(s.pools.trunk->live_pages(), pages);
    fill(fork, length, 1, 50);
    EXPECT_EQ(s.pools.trunk->live_pages(), pages + 1) << length;
    fill(cache, length, 1, 60);
    for (int p = 0; p < length; ++p) ASSERT_EQ(key_at(cache, p), key_at(fork, p));
    EXPECT_EQ(key_at(fork, length), length * 3 + 50);
    EXPECT_EQ(key_at(cache, length), length * 3 + 60);
    const int whole = length / 256;
    for (int p = 0; p < whole; ++p)
      EXPECT_EQ(cache.share_pages()[static_cast<std::size_t>(p)],
                fork.share_pages()[static_cast<std::size_t>(p)]);
  }
}

TEST(KvCache, TheLastReferenceWritesInPlace) {
  SmallStates s;
  KvCache cache(s.pools.trunk);
  fill(cache, 0, 10, 1);
  { const KvCache fork = cache.fork(); }
  const KvPage* page = cache.share_pages()[0].get();
  fill(cache, 10, 1, 1);
  EXPECT_EQ(cache.share_pages()[0].get(), page);
}

TEST(KvCache, ARefusedReserveLeavesEverythingAsItWas) {
  for (int allowed = 0;; ++allowed) {
    SmallStates s;
    KvCache cache(s.pools.trunk);
    fill(cache, 0, 300, 1);
    const KvCache other = cache.fork();
    s.ops.allowed = allowed;
    bool refused = false;
    try {
      cache.reserve(20000);  // a copy, many pages and a larger table
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      refused = true;
    }
    s.ops.allowed = -1;
    if (!refused) {
      EXPECT_GT(allowed, 10);
      break;
    }
    ASSERT_EQ(cache.length(), 300);
    EXPECT_EQ(cache.share_pages(), other.share_pages());
    fill(cache, 300, 1, 9);
    EXPECT_EQ(key_at(cache, 300), 909);
    EXPECT_EQ(key_at(cache, 299), key_at(other, 299));
  }
}

TEST(DraftHistory, AForkHoldsExactlyWhatWaits) {
  SmallStates s;
  SequenceState state = s.state();
  s.extend(state, count_up(5, 300));
  const DraftHistory fork = state.history()->fork();
  EXPECT_EQ(fork.evaluated(), 256);
  EXPECT_EQ(fork.waiting(), 43);
  EXPECT_EQ(fork.row_bytes(), 43u * 16u * sizeof(float));
  EXPECT_EQ(fork.waiting_tokens(), state.history()->waiting_tokens());
  EXPECT_EQ(testing::to_host(s.ops, fork.waiting_hidden()),
            testing::to_host(s.ops, state.history()->waiting_hidden()));
}

TEST(DraftHistory, RowsKeepTheirOrderWhileTheyComeAndGo) {
  SmallStates s;
  SequenceState state = s.state();
  DraftHistory& history = *state.history();
  int next = 0;
  int first = 0;
  std::uint64_t x = 3;
  for (int step = 0; step < 400; ++step) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    const int rows = static_cast<int>((x >> 33) % 9);
    std::vector<float> values;
    for (int r = 0; r < rows * 16; ++r) values.push_back(static_cast<float>((next + r / 16) * 100 + r % 16));
    history.append(make_view(values.data(), DType::kF32, rows, 16), count_up(next, rows));
    next += rows;
    const int drop = static_cast<int>((x >> 50) % static_cast<std::uint64_t>(history.waiting() + 1));
    if (step % 3 == 0) {
      history.pop_front(drop);
      first += drop;
    }
    ASSERT_EQ(history.waiting_tokens(), count_up(first, next - first));
    const std::vector<float> held = testing::to_host(s.ops, history.waiting_hidden());
    for (int r = 0; r < next - first; ++r)
      ASSERT_EQ(held[static_cast<std::size_t>(r) * 16 + 3], static_cast<float>((first + r) * 100 + 3));
  }
  EXPECT_GT(first, 300);
}

TEST(DraftHistory, RestartForgetsRowsPagesAndBase) {
  SmallStates s;
  SequenceState state = s.state();
  s.extend(state, count_up(5, 300));
  state.history()->restart_at(299);
  EXPECT_EQ(state.history()->base(), 299);
  EXPECT_EQ(state.history()->transitions(), 0);
  EXPECT_EQ(s.pools.head->live_pages(), 0u);
}

TEST(RecurrentState, LayersLieApartAndCopiesAreEqual) {
  SmallStates s;
  RecurrentState a(s.ops, s.geometry);
  const std::size_t floats = RecurrentState::size_bytes(s.geometry) / sizeof(float);
  EXPECT_EQ(floats, 2u * (2u * 16u * 8u + 3u * (2u * 16u + 16u)));
  float next = 1;
  for (const int layer : {0, 1}) {
    for (const TensorView view : {a.delta(layer), a.window(layer)})
      for (int r = 0; r < view.rows; ++r)
        for (int c = 0; c < view.cols; ++c) view.row<float>(r)[c] = next++;
  }
  EXPECT_EQ(next, static_cast<float>(floats + 1));
  float sum = 0;
  for (std::size_t i = 0; i < floats; ++i) sum += a.bytes().as<float>()[i];
  EXPECT_EQ(sum, static_cast<float>(floats) * static_cast<float>(floats + 1) / 2) << "no two views overlap";
  RecurrentState b(s.ops, s.geometry);
  b.copy_from(a);
  EXPECT_EQ(std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size_bytes()), 0);
  a.clear();
  EXPECT_EQ(a.delta(1).row<float>(0)[0], 0.0f);
  EXPECT_NE(b.delta(1).row<float>(0)[0], 0.0f);
}

}  // namespace
}  // namespace mererun
