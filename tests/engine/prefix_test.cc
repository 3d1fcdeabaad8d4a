// The prefix cache behind Run, on a made-up tiny model: whatever was stored or edited, an answer is the cold
// answer, and the report says what was reused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/prefix_fixture.h"

namespace mererun {
namespace {

using ::testing::Contains;
using testing::first;
using testing::Ids;
using testing::joined;
using testing::kPlenty;
using ::testing::Pair;

class Prefix : public testing::PrefixFixture {
 protected:
  /// Cold, then the same again, then with more behind it.
  void expect_replayed_whole(Engine& engine, int n) {
    const Ids prompt = ids(n, 100 + static_cast<std::uint64_t>(n));
    EXPECT_EQ(check(engine, prompt), 0);
    const GenerateResult again = warm(engine, prompt);
    EXPECT_EQ(again.prefix.matched_tokens, n);
    EXPECT_EQ(again.prefix.outcome, "exact");
    EXPECT_EQ(again.prefix.kind, "prompt");
    EXPECT_EQ(again.prefix.tier, "memory");
    EXPECT_EQ(again.acceleration.draft_history_tokens, n - 1);
    expect_cold(engine, prompt, again);
    EXPECT_EQ(check(engine, joined(prompt, ids(5, 7))), n);
  }
};

/// Blocks of four positions complete inside the prompts, sparse attention begins at 67.
class FlashPrefix : public Prefix {
 protected:
  FlashPrefix() {
    folder_ = testing::with_tokenizer(flash_temp_, testing::golden_dir() / "tiny-flash" / "mlx");
  }
  testing::TempFolder flash_temp_;
};

TEST_F(Prefix, AThenBThenA) {  // prefix.a_b_a, B034, B041
  const auto engine = load();
  for (const int pad : {0, 100, 2000}) {
    const Ids a = joined(ids(pad, 1), ids(40, 2));
    const Ids b = joined(ids(pad, 1), ids(45, 3));
    const GenerateResult one = warm(*engine, a);
    check(*engine, b);
    const GenerateResult three = warm(*engine, a);
    EXPECT_EQ(three.ids, one.ids);
    EXPECT_EQ(three.prefix.outcome, "exact");
    EXPECT_EQ(three.acceleration.draft_history_tokens, static_cast<int>(a.size()) - 1);
    expect_cold(*engine, a, three);
  }
}

TEST_F(Prefix, LengthsAroundPagesAreReplayedWhole) {  // prefix.lengths_around_pages, B039
  const auto engine = load();
  for (const int n : {1, 2, 20, 63, 64, 65, 255, 256, 257, 258, 511, 512, 513, 1023, 1024, 1025})
    expect_replayed_whole(*engine, n);
}

TEST_F(FlashPrefix, LengthsAroundBlocksAndTheBorderOfSparseAttentionAreReplayedWhole) {
  const auto engine = load();
  for (const int n : {1, 3, 4, 5, 63, 64, 65, 66, 67, 68, 71, 254, 255, 256, 257, 260})
    expect_replayed_whole(*engine, n);
}

TEST_F(Prefix, AnExactReplayChoosesFromTheStoredLogits) {
  const auto engine = load();
  const Ids prompt = ids(70, 31);
  const TokenId usual = warm(*engine, prompt).ids.front();
  const TokenId other = (usual + 1) % 256;
  const auto stored = engine->prefix_cache().peek(prompt, true);
  ASSERT_EQ(stored->length(), 70);
  std::vector<float> logits(stored->logits().begin(), stored->logits().end());
  logits[static_cast<std::size_t>(other)] = logits[static_cast<std::size_t>(usual)] + 1;
  engine->prefix_cache().clear();
  engine->prefix_cache().store(
      Snapshot::capture(stored->state(), prompt, std::move(logits), SnapshotClass::kPrompt));
  const GenerateResult again = warm(*engine, prompt);
  EXPECT_EQ(again.prefix.outcome, "exact");
  EXPECT_EQ(again.ids.front(), other) << "nothing is evaluated before the first draft";
}

TEST_F(Prefix, TailsOfOneToFiveTokens) {  // prefix.tails
  const auto engine = load();
  for (const int n : {30, 256, 300}) {
    const Ids base = ids(n, 7 + static_cast<std::uint64_t>(n));
    check(*engine, base);
    for (int tail = 1; tail <= 5; ++tail)
      EXPECT_EQ(check(*engine, joined(base, ids(tail, 50 + static_cast<std::uint64_t>(tail)))), n) << tail;
  }
}

TEST_F(Prefix, DivergenceReusesTheDeepestSnapshotInsideTheSharedPart) {  // prefix.divergence, B057
  const auto engine = load();
  const Ids shared = ids(300, 4);
  check(*engine, first(shared, 100));
  check(*engine, shared);
  for (const std::size_t at : {99u, 100u, 150u, 255u, 256u, 299u, 300u}) {
    const Ids prompt = joined(first(shared, at), ids(30, 900 + at));
    const GenerateResult got = warm(*engine, prompt);
    const int deepest = at < 100 ? 0 : at < 128 ? 100 : at < 256 ? 128 : at < 300 ? 256 : 300;
    EXPECT_EQ(got.prefix.matched_tokens, deepest) << at;
    if (at == 150) {
      EXPECT_EQ(got.prefix.outcome, "prefix");
      EXPECT_THAT(got.prefix.reason, ::testing::StartsWith("diverged-at 15"));
    }
    expect_cold(*engine, prompt, got);
  }
}

TEST_F(Prefix, AnyDivergenceReusesAtLeastHalfOfTheSharedPart) {  // B036
  const auto engine = load();
  const Ids shared = ids(1100, 41);
  warm(*engine, joined(first(shared, 160), ids(60, 42)));
  EXPECT_EQ(check(*engine, joined(first(shared, 150), ids(70, 43))), 128);
  warm(*engine, shared);
  for (const std::size_t at : {128u, 255u, 256u, 700u, 1023u, 1024u, 1099u}) {
    Ids changed = shared;
    changed[at] = (changed[at] + 1) % 256;
    const int reused = warm(*engine, changed).prefix.matched_tokens;
    EXPECT_LE(reused, static_cast<int>(at));
    EXPECT_GT(2 * reused, static_cast<int>(at)) << at;
  }
}

TEST_F(Prefix, AShorterOrEditedTurnNeverUsesALongerState) {  // prefix.shorter_turn, B040
  const auto engine = load();
  const Ids talk = ids(400, 5);
  for (const std::size_t n : {120u, 250u, 400u}) check(*engine, first(talk, n));
  EXPECT_EQ(check(*engine, first(talk, 399)), 256);
  EXPECT_EQ(check(*engine, first(talk, 121)), 120);
  EXPECT_EQ(check(*engine, first(talk, 60)), 0);
  Ids edited = talk;
  edited[130] = (edited[130] + 1) % 256;
  EXPECT_EQ(check(*engine, edited), 128);
  edited[3] = (edited[3] + 1) % 256;
  EXPECT_EQ(check(*engine, edited), 0);
}

TEST_F(Prefix, AGrowingConversationHitsEveryTurnButTheFirst) {  // prefix.growing_conversation, B038, B046
  const auto engine = load();
  Ids talk = ids(50, 6);
  int reused = 0;
  for (int turn = 0; turn < 5; ++turn) {
    const GenerateResult got = warm(*engine, talk);
    EXPECT_EQ(got.prefix.matched_tokens, reused);
    if (turn > 0) {
      EXPECT_EQ(got.prefix.kind, "reply") << "a generated prefix is reused";
    }
    expect_cold(*engine, talk, got);
    reused = static_cast<int>(talk.size() + got.ids.size()) - 1;  // the last token was never evaluated
    talk = joined(joined(talk, got.ids), ids(20 + turn, 60 + static_cast<std::uint64_t>(turn)));
  }
  EXPECT_EQ(engine->prefix_cache().counters().hits, 4);
  EXPECT_EQ(engine->prefix_cache().counters().misses, 1);
}

TEST_F(Prefix, AHitLeavesTheBitsOfAColdRun) {  // prefix.hit_equals_cold_bits
  const auto a = load();
  const auto b = load();
  const Ids base = ids(300, 8);
  const Ids prompt = joined(base, ids(270, 9));
  warm(*a, base);
  const GenerateResult hit = warm(*a, prompt);
  EXPECT_EQ(hit.prefix.matched_tokens, 300);
  warm(*b, prompt);
  const Ids end = joined(prompt, hit.ids);
  for (const Ids& stored : {prompt, end}) {
    const auto x = a->prefix_cache().peek(stored);
    const auto y = b->prefix_cache().peek(stored);
    ASSERT_TRUE(x && y);
    EXPECT_EQ(x->length(), y->length());
    EXPECT_EQ(Ids(x->ids().begin(), x->ids().end()), Ids(y->ids().begin(), y->ids().end()));
    EXPECT_EQ(std::vector<float>(x->logits().begin(), x->logits().end()),
              std::vector<float>(y->logits().begin(), y->logits().end()));
    EXPECT_EQ(testing::state_bytes(x->state()), testing::state_bytes(y->state()));
  }
}

TEST_F(Prefix, StoppingAfterAnyTokenLeavesAReusableState) {  // prefix.partial_accept_then_store, B045
  const auto engine = load();
  const Ids base = ids(260, 10);
  for (int tokens = 1; tokens <= 10; ++tokens) {
    GenerateRequest r = request(base, tokens);
    r.width = 5;
    const GenerateResult got = generate(*engine, std::move(r));
    ASSERT_EQ(got.ids.size(), static_cast<std::size_t>(tokens));
    const Ids next = joined(joined(base, got.ids), ids(9, 70 + static_cast<std::uint64_t>(tokens)));
    EXPECT_GE(check(*engine, next), 260 + tokens - 1);
  }
}

TEST_F(Prefix, DraftingOnOrOffGivesTheSameHitsAndStores) {  // prefix.mtp_on_off_same_hits, B044, B058
  std::vector<std::vector<int>> matched;
  std::vector<std::int64_t> stores;
  std::vector<std::vector<Ids>> answers;
  for (const int variant : {0, 1, 2}) {  // on, off, switched in between
    const auto engine = load();
    auto& m = matched.emplace_back();
    auto& texts = answers.emplace_back();
    Ids talk = ids(100, 11);
    for (int turn = 0; turn < 6; ++turn) {
      GenerateRequest r = request(talk);
      const bool drafts = variant == 0 || (variant == 2 && turn % 2 == 0);
      r.speculation = drafts ? Speculation::kOn : Speculation::kOff;
      const GenerateResult got = generate(*engine, std::move(r));
      EXPECT_EQ(got.acceleration.admission.drafts, drafts);
      EXPECT_EQ(got.acceleration.admission.history, HistoryMode::kStreaming)
          << "kept whole for later requests";
      if (drafts) {
        EXPECT_EQ(got.acceleration.draft_history_tokens, static_cast<int>(talk.size()) - 1);
      }
      m.push_back(got.prefix.matched_tokens);
      texts.push_back(got.ids);
      if (turn == 2) {
        talk = joined(first(talk, 90), ids(30, 12));
      } else {
        talk = joined(joined(talk, got.ids), ids(15, 80 + static_cast<std::uint64_t>(turn)));
      }
    }
    stores.push_back(engine->prefix_cache().counters().stored_prefixes);
    if (variant == 2) check(*engine, talk);
  }
  EXPECT_EQ(matched[0], matched[1]);
  EXPECT_EQ(matched[0], matched[2]);
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(answers[0], answers[2]);
  EXPECT_EQ(stores[0], stores[1]);
  EXPECT_EQ(stores[0], stores[2]);
}

TEST_F(Prefix, ARequestThatOptsOutLeavesAWholeSnapshot) {
  const auto engine = load();
  const Ids prompt = ids(300, 13);
  GenerateRequest r = request(prompt, 30);
  r.speculation = Speculation::kOff;
  const GenerateResult off = generate(*engine, std::move(r));
  for (const Ids& stored : {prompt, joined(prompt, off.ids)})
    EXPECT_TRUE(engine->prefix_cache().peek(stored)->has_whole_history());
  const Ids next = joined(joined(prompt, off.ids), ids(5, 14));
  const GenerateResult on = warm(*engine, next);
  EXPECT_EQ(on.prefix.matched_tokens, 329);
  EXPECT_GT(on.acceleration.statistics.drafted(), 0);
  expect_cold(*engine, next, on);
}

TEST_F(Prefix, WithoutAPreparedHistoryHitsStillEqualColdRuns) {
  const auto engine = load(kPlenty, StreamHistory::kNone);
  Ids talk = ids(270, 15);
  for (int turn = 0; turn < 3; ++turn) {
    const GenerateResult got = warm(*engine, talk);
    EXPECT_EQ(got.acceleration.draft_history_tokens, 0);
    EXPECT_GT(got.acceleration.statistics.drafted(), 0);
    if (turn > 0) {
      EXPECT_GT(got.prefix.matched_tokens, 270);
    }
    expect_cold(*engine, talk, got);
    talk = joined(joined(talk, got.ids), ids(15, 90 + static_cast<std::uint64_t>(turn)));
  }
}

TEST_F(Prefix, ARetainedHistoryBypassesTheCache) {
  const auto engine = load(kPlenty, StreamHistory::kOff);
  const Ids prompt = ids(50, 16);
  warm(*engine, prompt);
  const GenerateResult got = warm(*engine, prompt);
  EXPECT_EQ(got.prefix.outcome, "bypassed");
  EXPECT_EQ(got.prefix.reason, "retained-history");
  EXPECT_EQ(got.acceleration.draft_history_tokens, 49);
  EXPECT_EQ(engine->prefix_cache().entries(), 0u);
}

TEST_F(Prefix, ABypassingRequestNeitherReadsNorStores) {
  const auto engine = load();
  const Ids prompt = ids(50, 17);
  const GenerateResult got = cold(*engine, prompt);
  EXPECT_EQ(got.prefix.outcome, "bypassed");
  EXPECT_EQ(got.prefix.reason, "disabled");
  EXPECT_EQ(engine->prefix_cache().entries(), 0u);
  EXPECT_THAT(engine->prefix_cache().counters().skipped_stores, Contains(Pair("disabled", 1)));
  const auto off = load(0);
  EXPECT_EQ(warm(*off, prompt).prefix.reason, "disabled");
}

TEST_F(Prefix, LongPromptsLeaveIntervalsWhateverTheChunk) {
  EngineOptions options = testing::engine_options_for(folder_, kPlenty);
  options.prefill_chunk = 1000;
  const auto engine = Engine::load(options);
  const Ids prompt = ids(9000, 18);
  warm(*engine, prompt);
  Ids edited = prompt;
  edited[8500] = (edited[8500] + 1) % 256;
  GenerateResult got = warm(*engine, edited);
  EXPECT_EQ(got.prefix.matched_tokens, 8192);
  EXPECT_EQ(got.prefix.kind, "interval");
  EXPECT_EQ(got.prefix.reason, "diverged-at 8500");
  expect_cold(*engine, edited, got);
  edited[5000] = (edited[5000] + 1) % 256;
  got = warm(*engine, edited);
  EXPECT_EQ(got.prefix.matched_tokens, 4096);
  expect_cold(*engine, edited, got);
}

TEST_F(Prefix, SampledAnswersAreEqualToo) {
  const auto engine = load();
  const Ids base = ids(100, 24);
  warm(*engine, base);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const auto make = [&](bool cached) {
      GenerateRequest r = request(joined(base, ids(4, 25)), 30);
      r.sampling = {.temperature = 1.0, .top_p = 0.95, .frequency_penalty = 0.4, .seed = seed};
      r.uses_prefix_cache = cached;
      return r;
    };
    const GenerateResult got = generate(*engine, make(true));
    EXPECT_GE(got.prefix.matched_tokens, 100);
    EXPECT_EQ(got.ids, generate(*engine, make(false)).ids);
  }
}

}  // namespace
}  // namespace mererun
