#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mererun::testing {

/// A random walk over trees of conversations, every answer compared with a cold run's.
struct PrefixWalkPlan {
  int steps = 1000;
  std::uint64_t seed = 1;
  int conversations = 30;                  // distinct prompts alive at a time; each is run cold once
  int replace_every = 12;                  // steps until one of them gives way to a new one
  std::size_t budget_bytes = 0;            // of the prefix cache; 0: a few snapshots
  std::filesystem::path disk_folder = {};  // empty: memory only
  int restart_every = 50;                  // steps until another engine goes on with the folder
};

struct PrefixWalkResult {
  int steps = 0;
  int cold_runs = 0;
  std::int64_t hits = 0, exact_hits = 0, evictions = 0, reused_tokens = 0, disk_hits = 0;
  int restarts = 0, compared_states = 0, compared_histories = 0;
  int edits = 0, boundaries = 0, switches = 0;
  std::vector<std::string> differences;
};

/// `folder`: a checkpoint with a tokenizer beside it.
PrefixWalkResult run_prefix_walk(const std::filesystem::path& folder, const PrefixWalkPlan& plan);

}  // namespace mererun::testing
