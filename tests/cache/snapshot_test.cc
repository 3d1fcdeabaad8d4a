// Snapshots are immutable units, and verify transactions leave a state as it was or at the committed row.

#include <gtest/gtest.h>

#include "cache/verify_transaction.h"
#include "tests/cache/small_states.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

using testing::count_up;
using testing::SmallStates;
using testing::state_bytes;

TEST(Snapshot, RestoresEveryPart) {
  SmallStates s;
  for (const int length : {1, 2, 255, 256, 257, 258, 600}) {
    SequenceState state = s.state();
    s.extend(state, count_up(1, length));
    const auto snapshot = Snapshot::capture(state, count_up(1, length), {1, 2, 3}, SnapshotClass::kReply);
    EXPECT_EQ(state_bytes(snapshot->restore()), state_bytes(state)) << length;
    EXPECT_TRUE(snapshot->has_whole_history());
    EXPECT_EQ(snapshot->length(), length);
    EXPECT_EQ(snapshot->logits().size(), 3u);
  }
}

TEST(Snapshot, NothingThatHappensLaterReachesIt) {  // prefix.snapshot_isolation, prefix.fork_page_copy
  SmallStates s;
  for (const int length : {100, 256, 300}) {
    SequenceState state = s.state();
    s.extend(state, count_up(1, length));
    const auto snapshot = Snapshot::capture(state, count_up(1, length), {}, SnapshotClass::kPrompt);
    const auto before = state_bytes(snapshot->state());
    s.extend(state, count_up(900, 300));
    SequenceState restored = snapshot->restore();
    s.extend(restored, count_up(7000, 400));
    restored.recurrent().clear();
    EXPECT_EQ(state_bytes(snapshot->state()), before);
    SequenceState again = snapshot->restore();
    s.extend(again, count_up(900, 300));
    EXPECT_EQ(state_bytes(again), state_bytes(state)) << "restored and continued equals never stopped";
  }
}

TEST(Snapshot, MemoryFollowsTheFormulaOfTheDocs) {
  SmallStates s;
  SequenceState state = s.state();
  const int length = 700;
  s.extend(state, count_up(1, length));
  s.pools.trunk->trim();
  const std::size_t before = s.ops.live_bytes;
  const auto snapshot =
      Snapshot::capture(state, count_up(1, length), std::vector<float>(50), SnapshotClass::kPrompt);
  // A snapshot's own device memory: recurrent state, last hidden row, waiting rows. Its pages are the
  // state's.
  const std::size_t hidden_row = 16 * sizeof(float);
  const std::size_t waiting = 699 % 256;
  const std::size_t device = RecurrentState::size_bytes(s.geometry) + hidden_row * (1 + waiting);
  EXPECT_EQ(s.ops.live_bytes - before, device);
  const std::size_t host = (length + waiting) * sizeof(TokenId) + 50 * sizeof(float);
  EXPECT_EQ(snapshot->exclusive_bytes(), device + host);
  EXPECT_EQ(snapshot->pages().size(), 3u + 2u);
  // Going on copies the one page that is partly filled in each cache, and no other.
  const std::size_t pages = s.pools.trunk->live_pages();
  s.extend(state, count_up(1, 1));
  EXPECT_EQ(s.pools.trunk->live_pages(), pages + 1);
}

TEST(RecurrentState, TheNgramWindowHoldsAnyNumberOfRows) {
  SmallStates s;
  for (const int past : {1, 3}) {
    s.geometry.ngram_past = past;
    s.geometry.ngram_cols = 16;
    const RecurrentState state(s.ops, s.geometry);
    EXPECT_EQ(state.ngram_window().rows, past);
    EXPECT_EQ(state.ngram_window().cols, 16);
  }
}

TEST(RecurrentStateDeathTest, IsCopiedFromOneOfItsGeometry) {
  SmallStates s;
  RecurrentState state(s.ops, s.geometry);
  EXPECT_DEATH(state.ngram_window(), "n-gram layer");
  StateGeometry other = s.geometry;
  ++other.delta_layers;
  EXPECT_DEATH(state.copy_from(RecurrentState(s.ops, other)), "one geometry");
}

TEST(Snapshot, AFailedCaptureLeavesTheState) {
  SmallStates s;
  SequenceState state = s.state();
  s.extend(state, count_up(1, 300));
  const auto before = state_bytes(state);
  int refused = 0;
  for (int allowed = 0;; ++allowed, ++refused) {
    s.ops.allowed = allowed;
    try {
      Snapshot::capture(state, count_up(1, 300), {}, SnapshotClass::kPrompt);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      continue;
    }
    break;
  }
  EXPECT_GE(refused, 3);
  s.ops.allowed = -1;
  EXPECT_EQ(state_bytes(state), before);
}

TEST(Snapshot, AStateThatFailedMidwayIsNotCaptured) {
  SmallStates s;
  SequenceState state = s.state();
  s.extend(state, count_up(1, 3));
  state.begin_direct_pass();
  EXPECT_THROW(Snapshot::capture(state, count_up(1, 3), {}, SnapshotClass::kReply), Error);
}

/// The tiny dense checkpoint: transactions need a model that writes logs.
class Transactions : public ::testing::Test {
 protected:
  Transactions() : model_(testing::load_model(testing::golden_dir() / "tiny-dense" / "mlx", "cpu")) {}

  SequenceState prefilled(std::span<const TokenId> ids) {
    SequenceState state = model_->new_sequence();
    const PassSegment segment{&state, nullptr, 0, static_cast<int>(ids.size())};
    model_->decoder().forward(ids, {&segment, 1});
    return state;
  }
  TensorView verify(SequenceState& state, VerifyTransaction& transaction, std::span<const TokenId> rows) {
    const PassSegment segment{&state, &transaction, 0, static_cast<int>(rows.size())};
    return model_->decoder().forward(rows, {&segment, 1});
  }
  std::unique_ptr<Model> model_;
};

TEST_F(Transactions, WithoutACommitTheStateIsUntouched) {
  const auto ids = testing::random_ids(255, 512, 4);
  SequenceState state = prefilled(ids);
  const auto before = state_bytes(state);
  VerifyLog log = model_->new_verify_log(9);
  for (int width = 1; width <= 9; ++width) {
    VerifyTransaction transaction(state, log, width);
    verify(state, transaction, testing::random_ids(width, 512, 8));
  }
  EXPECT_EQ(state_bytes(state), before);
  VerifyTransaction transaction(state, log, 4);
  const TensorView hidden = verify(state, transaction, testing::random_ids(4, 512, 8));
  transaction.commit(0, hidden);
  EXPECT_EQ(state_bytes(state), before);
}

TEST_F(Transactions, CommittingKRowsEqualsEvaluatingThemAlone) {  // rollback.state_bytes
  const auto ids = testing::random_ids(253, 512, 4);              // rows cross a page
  const auto rows = testing::random_ids(9, 512, 9);
  const SequenceState start = prefilled(ids);
  SequenceState serial = start.fork();
  VerifyLog log = model_->new_verify_log(9);
  for (int k = 1; k <= 9; ++k) {
    const PassSegment segment{&serial, nullptr, 0, 1};
    model_->decoder().forward({&rows[static_cast<std::size_t>(k - 1)], 1}, {&segment, 1});
    for (int width = k; width <= 9; ++width) {
      SequenceState state = start.fork();
      VerifyTransaction transaction(state, log, width);
      const TensorView hidden =
          verify(state, transaction, std::span(rows).first(static_cast<std::size_t>(width)));
      transaction.commit(k, hidden);
      ASSERT_EQ(state_bytes(state), state_bytes(serial)) << "commit " << k << " of " << width;
    }
  }
}

TEST_F(Transactions, ARestoredStateCanRejectAtOnce) {  // rejection right after a hit
  const auto ids = testing::random_ids(256, 512, 4);
  const SequenceState start = prefilled(ids);
  const auto snapshot = Snapshot::capture(start, ids, {}, SnapshotClass::kPrompt);
  const auto before = state_bytes(snapshot->state());
  VerifyLog log = model_->new_verify_log(5);
  SequenceState restored = snapshot->restore();
  const auto rows = testing::random_ids(5, 512, 21);
  VerifyTransaction transaction(restored, log, 5);
  transaction.commit(1, verify(restored, transaction, rows));
  SequenceState serial = start.fork();
  const PassSegment segment{&serial, nullptr, 0, 1};
  model_->decoder().forward({rows.data(), 1}, {&segment, 1});
  EXPECT_EQ(state_bytes(restored), state_bytes(serial));
  EXPECT_EQ(state_bytes(snapshot->state()), before);
}

TEST_F(Transactions, AWidthBeyondTheLogIsRefused) {
  SequenceState state = prefilled(testing::random_ids(5, 512, 4));
  VerifyLog log = model_->new_verify_log(4);
  EXPECT_THROW(VerifyTransaction(state, log, 5), Error);
  EXPECT_THROW(VerifyTransaction(state, log, 0), Error);
}

}  // namespace
}  // namespace mererun
