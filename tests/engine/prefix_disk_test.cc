// The prefix cache across engines that share a folder: a restart replays exactly, damage costs a
// recomputation.

#include <gtest/gtest.h>

#include <fstream>

#include "engine/run.h"
#include "engine/snapshot_proof.h"
#include "tests/engine/tiny_engine.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPlenty = std::size_t{256} << 20;

class PrefixDisk : public ::testing::Test {
 protected:
  PrefixDisk() : folder_(testing::tiny_checkpoint_folder(temp_)) {}

  std::unique_ptr<Engine> load(bool with_disk = true, Speculation speculation = Speculation::kOn) {
    EngineOptions options = testing::engine_options_for(folder_, kPlenty);
    options.process.speculation = speculation;
    if (with_disk) options.prefix_cache_dir = temp_ / "cache";
    return Engine::load(options);
  }
  static GenerateResult ask(Engine& engine, const std::vector<TokenId>& prompt, int tokens = 40) {
    GenerateRequest r;
    r.ids = prompt;
    r.max_tokens = tokens;
    r.ignores_eos = true;
    r.full_depth = true;
    return generate(engine, std::move(r));
  }

  testing::TempFolder temp_;
  fs::path folder_;
};

void expect_equal(const GenerateResult& a, const GenerateResult& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.acceleration.draft_history_tokens, b.acceleration.draft_history_tokens);
  EXPECT_EQ(a.acceleration.statistics.drafted(), b.acceleration.statistics.drafted());
  EXPECT_EQ(a.acceleration.statistics.accepted_counts(), b.acceleration.statistics.accepted_counts());
}

/// The first drafts from a snapshot.
std::vector<TokenId> first_drafts(Engine& engine, const std::vector<TokenId>& prompt) {
  const auto snapshot = engine.prefix_cache().peek(prompt, true);
  return snapshot ? prove_snapshot(engine, *snapshot).first_drafts : std::vector<TokenId>{};
}

/// Four streams, index keys, the n-gram layer's window and token context: lengths inside a page, a block and
/// the dense range, and far past them.
class FlashPrefixDisk : public PrefixDisk {
 protected:
  FlashPrefixDisk() {
    folder_ = testing::with_tokenizer(flash_temp_, testing::golden_dir() / "tiny-flash" / "mlx");
  }
  testing::TempFolder flash_temp_;
};

TEST_F(FlashPrefixDisk, ARestartReplaysAndContinuesLikeAColdRun) {
  for (const int length : {3, 66, 258, 515}) {
    const auto prompt = testing::random_ids(length, 512, static_cast<std::uint64_t>(length));
    GenerateResult before;
    std::vector<TokenId> drafts;
    {
      const auto engine = load();
      before = ask(*engine, prompt, 30);
      drafts = first_drafts(*engine, prompt);
    }
    auto longer = prompt;
    longer.insert(longer.end(), before.ids.begin(), before.ids.end());
    longer.push_back(7);
    const auto cold_engine = load(false);
    ask(*cold_engine, prompt, 1);
    const auto want = cold_engine->prefix_cache().peek(prompt, true);
    ASSERT_EQ(want->length(), length);
    cold_engine->prefix_cache().clear();
    const auto cold = ask(*cold_engine, longer, 20);
    const auto engine = load();
    const StateGeometry geometry = engine->model().new_sequence().geometry();
    ASSERT_TRUE(geometry.index_dim > 0 && geometry.ngram_past > 0 && geometry.context_tokens > 0);
    const GenerateResult after = ask(*engine, prompt, 30);
    EXPECT_EQ(after.prefix.tier, "disk") << length;
    const auto got = engine->prefix_cache().peek(prompt, true);
    ASSERT_EQ(got->length(), length);
    EXPECT_EQ(testing::state_bytes(got->state()), testing::state_bytes(want->state())) << length;
    expect_equal(after, before);
    EXPECT_EQ(first_drafts(*engine, prompt), drafts) << length;
    const GenerateResult followed = ask(*engine, longer, 20);
    EXPECT_GE(followed.prefix.matched_tokens, length);
    EXPECT_EQ(followed.ids, cold.ids) << length;
    // Behind a reply more of the draft history is evaluated than in a cold run; the rest is bit for bit.
    EXPECT_EQ(testing::trunk_bytes(engine->prefix_cache().peek(longer, true)->state()),
              testing::trunk_bytes(cold_engine->prefix_cache().peek(longer, true)->state()))
        << length;
  }
}

TEST_F(PrefixDisk, ARestartReplaysAllTokensWithTheSameFirstDrafts) {  // prefix.restart, B042, B052
  const auto prompt = testing::random_ids(600, 256, 3);
  GenerateResult before;
  std::vector<TokenId> drafts;
  {
    const auto engine = load();
    before = ask(*engine, prompt);
    drafts = first_drafts(*engine, prompt);
    ASSERT_EQ(drafts.size(), 4u);
  }
  const auto engine = load();
  const GenerateResult after = ask(*engine, prompt);
  EXPECT_EQ(after.prefix.outcome, "exact");
  EXPECT_EQ(after.prefix.tier, "disk");
  EXPECT_EQ(after.prefix.matched_tokens, 600);
  expect_equal(after, before);
  EXPECT_EQ(first_drafts(*engine, prompt), drafts);
  EXPECT_EQ(engine->prefix_cache().counters().disk_hits, 1);
  // The reply was kept too, and the conversation goes on from it.
  auto next = prompt;
  next.insert(next.end(), before.ids.begin(), before.ids.end());
  const auto third = load();
  const GenerateResult follow_up = ask(*third, next);
  EXPECT_EQ(follow_up.prefix.matched_tokens, static_cast<int>(next.size()) - 1);
  EXPECT_EQ(follow_up.prefix.kind, "reply");
  const auto cold = load(false);
  expect_equal(follow_up, ask(*cold, next));
}

TEST_F(PrefixDisk, ALongerPrefixOnDiskBeatsAShorterOneInMemory) {
  const auto prompt = testing::random_ids(700, 256, 4);
  const std::vector<TokenId> part(prompt.begin(), prompt.begin() + 300);
  {
    const auto engine = load();
    ask(*engine, prompt);
  }
  const auto engine = load();
  EXPECT_EQ(ask(*engine, part).prefix.matched_tokens, 0);
  const GenerateResult got = ask(*engine, prompt);
  EXPECT_EQ(got.prefix.matched_tokens, 700);
  EXPECT_EQ(got.prefix.tier, "disk");
  const auto cold = load(false);
  expect_equal(got, ask(*cold, prompt));
}

TEST_F(PrefixDisk, DamagedFilesCostARecomputation) {
  const auto prompt = testing::random_ids(600, 256, 5);
  {
    const auto engine = load();
    ask(*engine, prompt);
  }
  for (const auto& file : fs::recursive_directory_iterator(temp_ / "cache")) {
    if (file.path().extension() != ".snap") continue;
    std::fstream f(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(static_cast<std::streamoff>(fs::file_size(file.path()) / 2));
    f.put('?').put('!').put('?');
  }
  const auto engine = load();
  const GenerateResult got = ask(*engine, prompt);
  EXPECT_EQ(got.prefix.outcome, "miss");
  EXPECT_EQ(got.prefix.reason, "corrupt");
  EXPECT_EQ(engine->prefix_cache().counters().disk_corrupt, 1);
  const auto cold = load(false);
  expect_equal(got, ask(*cold, prompt));
  engine->disk_store()->flush();
  const auto again = load();
  EXPECT_EQ(ask(*again, prompt).prefix.outcome, "exact") << "recomputed and stored again";
}

TEST_F(PrefixDisk, AProcessWithoutDraftsReadsWhatOneWithDraftsStored) {
  const auto prompt = testing::random_ids(600, 256, 6);
  GenerateResult before;
  {
    const auto engine = load();
    before = ask(*engine, prompt);
  }
  {
    const auto off = load(true, Speculation::kOff);
    const GenerateResult got = ask(*off, prompt);
    EXPECT_EQ(got.prefix.matched_tokens, 600);
    EXPECT_EQ(got.ids, before.ids);
  }
  const auto on = load();
  const GenerateResult got = ask(*on, prompt);
  EXPECT_EQ(got.prefix.matched_tokens, 600);
  expect_equal(got, before);
}

TEST_F(PrefixDisk, WhatAProcessWithoutDraftsStoredLacksAHistory) {
  const auto prompt = testing::random_ids(600, 256, 7);
  {
    const auto off = load(true, Speculation::kOff);
    ask(*off, prompt);
  }
  {
    const auto on = load();
    const GenerateResult got = ask(*on, prompt);
    EXPECT_EQ(got.prefix.outcome, "miss");
    EXPECT_EQ(got.prefix.reason, "no-history");
    const auto cold = load(false);
    expect_equal(got, ask(*cold, prompt));
  }
  const auto on = load();
  const GenerateResult got = ask(*on, prompt);
  EXPECT_EQ(got.prefix.matched_tokens, 600) << "computed again and stored whole";
  EXPECT_EQ(got.prefix.reason, "");
}

}  // namespace
}  // namespace mererun
