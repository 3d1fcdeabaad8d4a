// The prefix cache behind Run, on a made-up tiny model: whatever was stored, evicted, edited or interrupted,
// an answer is the cold answer, and the report says what was reused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/run.h"
#include "tests/engine/tiny_engine.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

using ::testing::Contains;
using ::testing::Pair;

constexpr std::size_t kPlenty = std::size_t{256} << 20;
constexpr int kReply = 12;

using Ids = std::vector<TokenId>;

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Ids first(const Ids& ids, std::size_t n) {
  return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n)};
}

class Prefix : public ::testing::Test {
 protected:
  Prefix() : folder_(testing::tiny_checkpoint_folder(temp_)) {}

  std::unique_ptr<Engine> load(std::size_t budget = kPlenty, StreamHistory mode = StreamHistory::kOn) {
    EngineOptions options = testing::engine_options_for(folder_, budget);
    options.process.stream_history = mode;
    return Engine::load(options);
  }
  static Ids ids(int n, std::uint64_t seed) { return testing::random_ids(n, 256, seed); }
  static GenerateRequest request(const Ids& prompt, int tokens = kReply) {
    GenerateRequest r;
    r.ids = prompt;
    r.max_tokens = tokens;
    r.ignores_eos = true;
    r.logprobs = 2;
    r.speculation = Speculation::kOn;
    return r;
  }
  GenerateResult warm(Engine& engine, const Ids& prompt) { return generate(engine, request(prompt)); }
  GenerateResult cold(Engine& engine, const Ids& prompt) {
    GenerateRequest r = request(prompt);
    r.uses_prefix_cache = false;
    return generate(engine, std::move(r));
  }
  /// Asks, compares with a cold run, and returns how many tokens were reused.
  int check(Engine& engine, const Ids& prompt) {
    const GenerateResult got = warm(engine, prompt);
    expect_cold(engine, prompt, got);
    return got.prefix.matched_tokens;
  }
  void expect_cold(Engine& engine, const Ids& prompt, const GenerateResult& got) {
    const GenerateResult want = cold(engine, prompt);
    EXPECT_EQ(got.ids, want.ids);
    EXPECT_EQ(got.output_sha256(), want.output_sha256());
    EXPECT_EQ(got.acceleration.draft_history_tokens, want.acceleration.draft_history_tokens);
    EXPECT_EQ(got.acceleration.statistics.drafted(), want.acceleration.statistics.drafted());
    EXPECT_EQ(got.acceleration.statistics.accepted(), want.acceleration.statistics.accepted());
    ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
    for (std::size_t i = 0; i < got.logprobs.size(); ++i) {
      EXPECT_EQ(got.logprobs[i].row.chosen.logprob, want.logprobs[i].row.chosen.logprob) << "token " << i;
      for (std::size_t k = 0; k < got.logprobs[i].row.top.size(); ++k)
        EXPECT_EQ(got.logprobs[i].row.top[k].logprob, want.logprobs[i].row.top[k].logprob);
    }
  }

  testing::TempFolder temp_;
  std::filesystem::path folder_;
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
  for (const int n : {1, 2, 20, 63, 64, 65, 255, 256, 257, 258, 511, 512, 513, 1023, 1024, 1025}) {
    const Ids prompt = ids(n, 100 + static_cast<std::uint64_t>(n));
    EXPECT_EQ(check(*engine, prompt), 0);
    const GenerateResult again = warm(*engine, prompt);
    EXPECT_EQ(again.prefix.matched_tokens, n);
    EXPECT_EQ(again.prefix.outcome, "exact");
    EXPECT_EQ(again.prefix.kind, "prompt");
    EXPECT_EQ(again.prefix.tier, "memory");
    EXPECT_EQ(again.acceleration.draft_history_tokens, n - 1);
    expect_cold(*engine, prompt, again);
  }
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
    EXPECT_EQ(got.prefix.matched_tokens, at < 100 ? 0 : at < 300 ? 100 : 300) << at;
    if (at == 150) {
      EXPECT_EQ(got.prefix.outcome, "prefix");
      EXPECT_THAT(got.prefix.reason, ::testing::StartsWith("diverged-at 15"));
    }
    expect_cold(*engine, prompt, got);
  }
}

TEST_F(Prefix, AShorterOrEditedTurnNeverUsesALongerState) {  // prefix.shorter_turn, B040
  const auto engine = load();
  const Ids talk = ids(400, 5);
  for (const std::size_t n : {120u, 250u, 400u}) check(*engine, first(talk, n));
  EXPECT_EQ(check(*engine, first(talk, 399)), 250);
  EXPECT_EQ(check(*engine, first(talk, 121)), 120);
  EXPECT_EQ(check(*engine, first(talk, 60)), 0);
  Ids edited = talk;
  edited[130] = (edited[130] + 1) % 256;
  EXPECT_EQ(check(*engine, edited), 121);
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
    r.full_depth = true;
    r.block_size = 5;
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
  // Once histories are wanted again, what was stored without one is of no use.
  engine->set_process(Speculation::kOn, std::nullopt, std::nullopt);
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

TEST_F(Prefix, ABudgetBelowOneSnapshotStillAnswers) {  // prefix.tiny_budget
  const auto engine = load(1000);
  const Ids prompt = ids(80, 19);
  check(*engine, prompt);
  EXPECT_EQ(check(*engine, prompt), 0);
  EXPECT_THAT(engine->prefix_cache().counters().skipped_stores,
              Contains(Pair("too-large", ::testing::Ge(4))));
  EXPECT_EQ(engine->prefix_cache().bytes(), 0u);
}

TEST_F(Prefix, RunsThatTakeTurnsUnderATinyBudgetAnswerAsAlone) {  // B048, B049, B051
  const auto probe = load();
  warm(*probe, ids(200, 20));
  const std::size_t some = probe->prefix_cache().bytes();
  for (const std::size_t budget : {some, 2 * some, 4 * some}) {
    const auto engine = load(budget);
    const Ids shared = ids(150, 21);
    warm(*engine, shared);
    std::vector<Ids> prompts;
    for (std::uint64_t i = 0; i < 8; ++i)
      prompts.push_back(joined(shared, ids(20 + 9 * static_cast<int>(i), 30 + i)));
    std::vector<std::unique_ptr<mererun::Run>> runs;
    for (const Ids& prompt : prompts)
      runs.push_back(std::make_unique<mererun::Run>(*engine, request(prompt, 40)));
    for (bool going = true; going;) {
      going = false;
      for (const auto& run : runs) {
        if (run->is_finished()) continue;
        run->step();
        going = true;
      }
    }
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const GenerateResult got = runs[i]->take_result();
      EXPECT_EQ(got.prefix.matched_tokens, 150) << "pinned from admission on";
      GenerateRequest alone = request(prompts[i], 40);
      alone.uses_prefix_cache = false;
      EXPECT_EQ(got.ids, generate(*engine, std::move(alone)).ids);
    }
    EXPECT_LE(engine->prefix_cache().bytes(), budget);
  }
}

TEST_F(Prefix, CancellationStoresWhatIsCommittedOrSaysThatItDoesNot) {
  const auto engine = load();
  const Ids prompt = ids(3000, 22);
  mererun::Run early(*engine, request(prompt));
  early.step();
  early.step();
  early.cancel();
  early.step();
  EXPECT_TRUE(early.is_finished());
  EXPECT_EQ(early.take_result().finish, FinishReason::kCancelled);
  EXPECT_THAT(engine->prefix_cache().counters().skipped_stores, Contains(Pair("cancelled", 1)));
  EXPECT_EQ(engine->prefix_cache().entries(), 0u);
  mererun::Run late(*engine, request(prompt, 200));
  while (late.prompt_done() < 3000) late.step();
  for (int i = 0; i < 5; ++i) late.step();
  late.cancel();
  late.step();
  const GenerateResult cut = late.take_result();
  EXPECT_EQ(cut.finish, FinishReason::kCancelled);
  ASSERT_GT(cut.ids.size(), 4u);
  EXPECT_GE(check(*engine, joined(joined(prompt, cut.ids), ids(3, 23))),
            3000 + static_cast<int>(cut.ids.size()) - 1);
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

TEST_F(Prefix, APromptMustLeaveRoomForOneToken) {
  const auto engine = load();
  const auto ask = [&](int n) {
    GenerateRequest r = request(ids(n, 26), 10);
    r.context_limit = 64;
    return generate(*engine, std::move(r));
  };
  EXPECT_EQ(ask(63).ids.size(), 1u);
  EXPECT_EQ(ask(63).prefix.matched_tokens, 63);
  for (const int n : {64, 65}) {
    try {
      ask(n);
      ADD_FAILURE() << n;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::to_string(n)));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("64"));
    }
  }
}

TEST_F(Prefix, AThousandRequestsLeaveMemoryFlat) {  // B059, B060
  const std::size_t budget = std::size_t{4} << 20;  // some thirty snapshots
  const auto engine = load(budget);
  std::uint64_t x = 5;
  std::size_t pages_after_warm_up = 0;
  for (int i = 0; i < 1000; ++i) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    const int n = 1 + 10 * static_cast<int>((x >> 33) % 4);
    GenerateRequest r =
        request(joined(ids(n, (x >> 24) % 8), ids(3, (x >> 30) % 2)), 1 + static_cast<int>((x >> 45) % 4));
    r.logprobs.reset();
    if (i % 7 == 3) {
      mererun::Run run(*engine, std::move(r));
      for (int step = 0; step < i % 5; ++step) run.step();
      run.cancel();
      run.run_to_end();
    } else {
      generate(*engine, std::move(r));
    }
    ASSERT_LE(engine->prefix_cache().bytes(), budget);
    const KvPagePool& trunk = *engine->model().pools().trunk;
    const KvPagePool& head = *engine->model().pools().head;
    const std::size_t pages = trunk.live_pages() + trunk.free_pages() + head.live_pages() + head.free_pages();
    if (i == 300) pages_after_warm_up = pages;
    if (i > 300) {
      ASSERT_LE(pages, pages_after_warm_up + 4) << "request " << i;
    }
  }
  EXPECT_GT(engine->prefix_cache().counters().evictions, 300);
  EXPECT_GT(engine->prefix_cache().counters().hits, 100);
}

}  // namespace
}  // namespace mererun
