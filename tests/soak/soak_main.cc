// The whole speculation soak on one checkpoint: soak CHECKPOINT_FOLDER [PROMPTS [TOKENS [FIRST STRIDE
// THREADS]]]. FIRST and STRIDE take a part of the prompts, so that several processes of THREADS threads share
// the work.

#include <fmt/format.h>

#include <cstdlib>

#include "base/clock.h"
#include "base/error.h"
#include "tests/soak/speculation_soak.h"

int main(int argc, char** argv) {
  using namespace mererun;
  if (argc < 2) {
    fmt::print(stderr, "usage: {} CHECKPOINT_FOLDER [PROMPTS [TOKENS [FIRST STRIDE THREADS]]]\n", argv[0]);
    return 64;
  }
  try {
    EngineOptions options{.model = {.model = "", .root = argv[1]},
                          .process = {.speculation = Speculation::kOn}};
    if (argc > 6) options.threads = std::atoi(argv[6]);
    const auto engine = Engine::load(options);
    testing::SoakPlan plan;
    if (argc > 2) plan.prompts = std::atoi(argv[2]);
    if (argc > 3) plan.tokens = std::atoi(argv[3]);
    if (argc > 5) {
      plan.first = std::atoi(argv[4]);
      plan.stride = std::atoi(argv[5]);
    }
    const Stopwatch watch;
    const testing::SoakResult r = testing::run_speculation_soak(*engine, plan);
    for (const std::string& difference : r.differences) fmt::print("DIFFERENCE {}\n", difference);
    fmt::print(
        "model={} prompts={} generations={} tokens={} drafted={} accepted={} seconds={:.0f} differences={}\n",
        engine->resolved().id, r.prompts, r.generations, r.tokens, r.drafted, r.accepted, watch.seconds(),
        r.differences.size());
    return r.differences.empty() ? 0 : 1;
  } catch (const Error& error) {
    fmt::print(stderr, "soak: {}\n", error.what());
    return 70;
  }
}
