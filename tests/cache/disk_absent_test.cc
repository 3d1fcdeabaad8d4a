// A build without SQLite and xxHash: a folder for the prefix cache is refused with what to do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "cache/disk_store.h"
#include "tests/cache/small_states.h"

namespace mererun {
namespace {

void expect_refusal(const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("SQLite"));
    EXPECT_THAT(error.hint(), ::testing::HasSubstr("--prefix-cache-dir"));
  }
}

TEST(DiskStoreAbsent, IsRefusedWithWhatToDo) {
  EXPECT_FALSE(is_disk_store_built());
  expect_refusal(require_disk_store);
  testing::SmallStates states;
  expect_refusal([&] {
    open_disk_store(states.ops, states.geometry, states.pools, {.folder = "/nowhere", .model = "model"});
  });
}

}  // namespace
}  // namespace mererun
