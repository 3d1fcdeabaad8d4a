// A long random walk over the prefix cache: prefix_soak dense|moe STEPS [SEED]. Runs a made-up tiny model;
// scripts/soak_prefix.sh runs both.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "cache/disk_store.h"
#include "tests/engine/tiny_engine.h"
#include "tests/exact/prefix_walk.h"

int main(int argc, char** argv) {
  using namespace mererun;
  if (argc < 3) {
    fmt::print(stderr, "usage: {} dense|moe STEPS [SEED]\n", argv[0]);
    return 64;
  }
  try {
    const testing::TempFolder temp;
    const auto folder = testing::tiny_checkpoint_folder(temp, 4096, std::string_view(argv[1]) == "moe");
    testing::PrefixWalkPlan plan{.steps = std::atoi(argv[2]), .conversations = 60, .replace_every = 20};
    if (is_disk_store_built()) plan.disk_folder = temp / "cache";
    plan.restart_every = 2000;
    plan.budget_bytes = std::size_t{8} << 20;
    if (argc > 3) plan.seed = static_cast<std::uint64_t>(std::atoll(argv[3]));
    const Stopwatch watch;
    const testing::PrefixWalkResult r = testing::run_prefix_walk(folder, plan);
    for (std::size_t i = 0; i < std::min<std::size_t>(r.differences.size(), 20); ++i)
      fmt::print("DIFFERENCE {}\n", r.differences[i]);
    fmt::print(
        "steps={} coldRuns={} hits={} exactHits={} diskHits={} reusedTokens={} evictions={} edits={} "
        "boundaries={} restarts={} comparedStates={} seconds={:.0f} differences={}\n",
        r.steps, r.cold_runs, r.hits, r.exact_hits, r.disk_hits, r.reused_tokens, r.evictions, r.edits,
        r.boundaries, r.restarts, r.compared_states, watch.seconds(), r.differences.size());
    return r.differences.empty() ? 0 : 1;
  } catch (const Error& error) {
    fmt::print(stderr, "prefix soak: {}\n", error.what());
    return 70;
  }
}
