#pragma once

#include <gtest/gtest.h>

#include "engine/run.h"
#include "tests/engine/tiny_engine.h"
#include "tests/support/models.h"

namespace mererun::testing {

inline constexpr std::size_t kPlenty = std::size_t{256} << 20;
inline constexpr int kReply = 12;

using Ids = std::vector<TokenId>;

inline Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline Ids first(const Ids& ids, std::size_t n) {
  return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n)};
}

/// Requests of ids to a made-up tiny model, each compared with a cold run.
class PrefixFixture : public ::testing::Test {
 protected:
  PrefixFixture() : folder_(tiny_checkpoint_folder(temp_)) {}

  std::unique_ptr<Engine> load(std::size_t budget = kPlenty, StreamHistory mode = StreamHistory::kOn) {
    EngineOptions options = engine_options_for(folder_, budget);
    options.process.stream_history = mode;
    return Engine::load(options);
  }
  static Ids ids(int n, std::uint64_t seed) { return random_ids(n, 256, seed); }
  static GenerateRequest request(const Ids& prompt, int tokens = kReply) {
    GenerateRequest r;
    r.ids = prompt;
    r.max_tokens = tokens;
    r.ignores_eos = true;
    r.logprobs = 2;
    r.speculation = Speculation::kOn;
    r.full_depth = true;
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

  TempFolder temp_;
  std::filesystem::path folder_;
};

}  // namespace mererun::testing
