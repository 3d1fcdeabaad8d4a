#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cache/disk_store.h"
#include "tests/cache/small_states.h"
#include "tests/support/models.h"
#include "tests/support/temp_folder.h"

namespace mererun::testing {

using Ids = std::vector<TokenId>;

/// A store in a new folder, and made-up states to keep there.
class DiskStoreFixture : public ::testing::Test {
 protected:
  std::unique_ptr<DiskStore> open(std::int64_t budget = 1 << 30, const std::string& model = "model-a",
                                  const std::string& head = "head-a") {
    return open(states_, budget, model, head);
  }
  std::unique_ptr<DiskStore> open(SmallStates& states, std::int64_t budget = 1 << 30,
                                  const std::string& model = "model-a", const std::string& head = "head-a") {
    return open_disk_store(states.ops, states.geometry, states.pools,
                           {.folder = folder(), .budget_bytes = budget, .model = model, .head = head});
  }
  std::filesystem::path folder() const { return temp_ / "store"; }
  static SnapshotTier::Query query(const Ids& prompt, bool needs_history = true) {
    return {.prompt = prompt, .longer_than = 0, .needs_history = needs_history, .base = nullptr};
  }
  int found(DiskStore& store, const Ids& prompt) {
    const auto answer = store.find(query(prompt));
    return answer.snapshot ? answer.snapshot->length() : 0;
  }
  /// Expects exactly the state of a snapshot made afresh.
  void expect_equal(const Snapshot& got) {
    const auto want = states_.snapshot(Ids(got.ids().begin(), got.ids().end()));
    EXPECT_EQ(state_bytes(got.state()), state_bytes(want->state())) << got.length();
    EXPECT_TRUE(got.has_whole_history());
  }
  std::vector<std::filesystem::path> files(const char* extension = nullptr) const {
    std::vector<std::filesystem::path> out;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder()))
      if (file.is_regular_file() && (extension == nullptr || file.path().extension() == extension))
        out.push_back(file.path());
    std::sort(out.begin(), out.end());
    return out;
  }
  static std::string read(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  TempFolder temp_;
  SmallStates states_;
};

}  // namespace mererun::testing
