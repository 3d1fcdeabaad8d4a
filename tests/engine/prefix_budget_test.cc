// The prefix cache behind Run when room is short: tiny budgets, evictions under running requests, cancelled
// requests, many requests.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/proc_fields.h"
#include "tests/engine/prefix_fixture.h"

namespace mererun {
namespace {

using ::testing::Contains;
using testing::first;
using testing::Ids;
using testing::joined;
using ::testing::Pair;

class PrefixBudget : public testing::PrefixFixture {};

/// Memory that only this process holds, swapped out or not.
std::uint64_t own_kilobytes() {
  const std::string status = read_proc("/proc/self/status");
  return proc_number(status, "RssAnon").value_or(0) + proc_number(status, "VmSwap").value_or(0);
}

TEST_F(PrefixBudget, ABudgetBelowOneSnapshotStillAnswers) {  // prefix.tiny_budget
  const auto engine = load(1000);
  const Ids prompt = ids(80, 19);
  check(*engine, prompt);
  EXPECT_EQ(check(*engine, prompt), 0);
  EXPECT_THAT(engine->prefix_cache().counters().skipped_stores,
              Contains(Pair("too-large", ::testing::Ge(4))));
  EXPECT_EQ(engine->prefix_cache().bytes(), 0u);
}

TEST_F(PrefixBudget, RunsThatTakeTurnsUnderATinyBudgetAnswerAsAlone) {  // B048, B049, B051
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

TEST_F(PrefixBudget, ThreeTalksTakeTurnsUnderABudgetForTwo) {  // B041, B048
  const auto probe = load();
  warm(*probe, ids(100, 50));
  const auto engine = load(2 * probe->prefix_cache().bytes());
  std::vector<Ids> talks;
  for (std::uint64_t i = 0; i < 3; ++i) talks.push_back(ids(90, 51 + i));
  for (int turn = 0; turn < 4; ++turn) {
    for (Ids& talk : talks) {
      const GenerateResult got = warm(*engine, talk);
      expect_cold(*engine, talk, got);
      // A turn again finds at least what it has just stored.
      EXPECT_EQ(warm(*engine, talk).prefix.matched_tokens, static_cast<int>(talk.size()));
      talk = joined(joined(talk, got.ids), ids(3, 60 + static_cast<std::uint64_t>(turn)));
    }
  }
  EXPECT_GT(engine->prefix_cache().counters().evictions, 0);
}

TEST_F(PrefixBudget, CancellationStoresWhatIsCommittedOrSaysThatItDoesNot) {
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
  EXPECT_EQ(engine->prefix_cache().entries(), 1u) << "the first aligned position that it passed";
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

TEST_F(PrefixBudget, APromptMustLeaveRoomForOneToken) {
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

TEST_F(PrefixBudget, AThousandRequestsLeaveMemoryFlat) {  // B059, B060
  const std::size_t budget = std::size_t{4} << 20;        // some thirty snapshots
  const auto engine = load(budget);
  std::uint64_t x = 5;
  std::size_t pages_after_warm_up = 0;
  std::uint64_t kilobytes_after_warm_up = 0;
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
    if (i == 300) {
      pages_after_warm_up = pages;
      kilobytes_after_warm_up = own_kilobytes();
    }
    if (i > 300) {
      ASSERT_LE(pages, pages_after_warm_up + 4) << "request " << i;
    }
  }
  // Engines that leak lose 5 to 12 MiB a request.
  EXPECT_LT(own_kilobytes(), kilobytes_after_warm_up + 16 * 1024);
  EXPECT_GT(engine->prefix_cache().counters().evictions, 300);
  EXPECT_GT(engine->prefix_cache().counters().hits, 100);
}

}  // namespace
}  // namespace mererun
