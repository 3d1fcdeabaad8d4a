#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace mererun::testing {

struct SoakPlan {
  int prompts = 60;
  int first = 0;  // start with this prompt, then every `stride`-th: a subset
  int stride = 1;
  int tokens = 256;
  std::vector<int> widths{2, 3, 4, 5, 6, 7, 8, 9};
};

struct SoakResult {
  std::int64_t prompts = 0;
  std::int64_t generations = 0;
  std::int64_t tokens = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  std::vector<std::string> differences;  // one line each
};

/// Every prompt serially, then with forced full depth and with adaptive depth at every width, then with
/// drafts that are random, always wrong and always right: token for token the serial output, end tokens
/// ignored.
SoakResult run_speculation_soak(Engine& engine, const SoakPlan& plan);

}  // namespace mererun::testing
