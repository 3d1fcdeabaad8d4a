// What /metrics says of the prefix cache on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/server/live_service.h"

namespace mererun {
namespace {

using ::testing::HasSubstr;
using testing::LiveService;
using Json = nlohmann::ordered_json;

/// What a restart finds on disk, and what it drops there because it is damaged.
TEST(DiskMetrics, CountHitsDamageAndReusedTokens) {
  const testing::TempFolder temp;
  const std::filesystem::path folder = testing::talking_checkpoint(temp);
  const Json ask{{"prompt", std::vector<int>(600, 5)}, {"max_tokens", 4}, {"temperature", 0}};
  const auto restarted = [&] {
    EngineOptions options = testing::talking_options(folder);
    options.prefix_cache_dir = temp / "cache";
    return std::make_unique<LiveService>(Engine::load(options));
  };
  const auto metrics_after = [&](LiveService& service) {
    EXPECT_EQ(service.post("/v1/completions", ask).status, 200);
    return service.get("/metrics").body;
  };
  const std::string cold = metrics_after(*restarted());
  EXPECT_THAT(cold, HasSubstr("mererun_prefix_cache_disk_hits_total 0\n"));
  EXPECT_THAT(cold, HasSubstr("mererun_prefix_cache_reused_tokens_total 0\n"));
  EXPECT_THAT(cold, HasSubstr("mererun_prefix_cache_bytes{tier=\"disk\"} "));
  const std::string warm = metrics_after(*restarted());
  EXPECT_THAT(warm, HasSubstr("# TYPE mererun_prefix_cache_disk_hits_total counter\n"
                              "mererun_prefix_cache_disk_hits_total 1\n"));
  EXPECT_THAT(warm, HasSubstr("mererun_prefix_cache_disk_corrupt_total 0\n"));
  EXPECT_THAT(warm, HasSubstr("mererun_prefix_cache_reused_tokens_total 600\n"));
  for (const auto& file : std::filesystem::recursive_directory_iterator(temp / "cache")) {
    if (file.path().extension() != ".snap") continue;
    std::fstream f(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file.path()) / 2));
    f.put('?').put('!').put('?');
  }
  const std::string damaged = metrics_after(*restarted());
  EXPECT_THAT(damaged, HasSubstr("mererun_prefix_cache_disk_hits_total 0\n"));
  EXPECT_THAT(damaged, HasSubstr("mererun_prefix_cache_disk_corrupt_total 1\n"));
}

}  // namespace
}  // namespace mererun
