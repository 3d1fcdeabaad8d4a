#include "engine/environment_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/sha256.h"
#include "engine/build_info.h"
#include "engine/device_info.h"
#include "engine/memory_usage.h"
#include "engine/proc_fields.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kStat =
    "4242 (a (b) c) S 17 4242 1 0 -1 4194560 100 0 0 0 31 12 5 6 20 0 3 0 12345 1000000 250 "
    "18446744073709551615";

TEST(ProcessStat, ReadsPastAnyName) {
  const auto times = parse_process_stat(kStat);
  ASSERT_TRUE(times);
  EXPECT_EQ(times->pid, 4242);
  EXPECT_EQ(times->name, "a (b) c");
  EXPECT_EQ(times->parent, 17);
  EXPECT_EQ(times->ticks, 43U);  // user 31, system 12; not those of children
}

TEST(ProcessStat, RefusesOtherTexts) {
  const std::string whole = kStat;
  for (const std::string& text : {std::string(), std::string("12 x S 1"), std::string("12 (x"),
                                  whole.substr(0, whole.find(" 31 ")), std::string("x (y) S 1 2 3")}) {
    EXPECT_FALSE(parse_process_stat(text)) << text;
  }
}

TEST(ProcessStat, KnowsOurselves) {
  const auto times = parse_process_stat(read_proc("/proc/self/stat"));
  ASSERT_TRUE(times);
  EXPECT_EQ(times->pid, static_cast<int>(getpid()));
  EXPECT_EQ(times->parent, static_cast<int>(getppid()));
}

TEST(CompetingProcesses, AreThoseThatUsedTheProcessors) {
  const std::vector<ProcessTimes> before = {{10, 1, "idle", 500},
                                            {11, 1, "busy", 100},
                                            {12, 1, "us", 0},
                                            {13, 12, "child", 0},
                                            {14, 2, "kworker", 0}};
  const std::vector<ProcessTimes> after = {{10, 1, "idle", 501},  {11, 1, "busy", 115},   {12, 1, "us", 40},
                                           {13, 12, "child", 20}, {14, 2, "kworker", 20}, {15, 1, "new", 20}};
  const auto competing = compare_process_times(before, after, 0.2, 100, 12);
  ASSERT_EQ(competing.size(), 2U);
  EXPECT_EQ(competing[0].name, "new");
  EXPECT_DOUBLE_EQ(competing[0].cores, 1.0);
  EXPECT_EQ(competing[1].name, "busy");
  EXPECT_DOUBLE_EQ(competing[1].cores, 0.75);
}

TEST(CompetingProcesses, ManySmallOnesCountTogetherAndAFewDoNot) {
  std::vector<ProcessTimes> before, after;
  for (int pid = 100; pid < 104; ++pid) {
    before.push_back({pid, 1, "small", 0});
    after.push_back({pid, 1, "small", 3});  // 0.15 cores each
  }
  EXPECT_EQ(compare_process_times(before, after, 0.2, 100, 999).size(), 4U);
  before.resize(3);
  after.resize(3);
  EXPECT_THAT(compare_process_times(before, after, 0.2, 100, 999), IsEmpty());
}

TEST(EnvironmentReport, SaysWhyTimingsAreNoEvidence) {
  EnvironmentReport report;
  EXPECT_THAT(report.invalid_reasons(), IsEmpty());
  report.swap_before = 4096;
  report.swap_after = 4096;
  EXPECT_THAT(report.invalid_reasons(), IsEmpty());
  report.swap_after = 8192;
  report.competing.push_back({.pid = 7, .name = "other", .cores = 1.5});
  EXPECT_THAT(report.invalid_reasons(), ElementsAre("competing process other (pid 7) kept 1.5 cores busy",
                                                    "swap grew by 4096 bytes during the run"));
  report.swap_before.reset();  // a system that does not tell
  EXPECT_EQ(report.invalid_reasons().size(), 1U);
}

TEST(SwapUsed, IsTotalLessFree) {
  EXPECT_EQ(parse_swap_used("MemTotal: 100 kB\nSwapTotal:     10 kB\nSwapFree:   4 kB\n"), 6 * 1024U);
  EXPECT_FALSE(parse_swap_used("SwapTotal: 10 kB\n"));
  EXPECT_FALSE(parse_swap_used("SwapTotal: 10 kB\nSwapFree: 11 kB\n"));
}

TEST(MemoryUsage, ReadsItsTwoFields) {
  const auto usage = parse_memory_status("VmPeak:\t  9 kB\nVmHWM:\t  8 kB\nVmRSS:\t  5 kB\n");
  ASSERT_TRUE(usage);
  EXPECT_EQ(usage->resident, 5 * 1024U);
  EXPECT_EQ(usage->peak, 8 * 1024U);
  EXPECT_FALSE(parse_memory_status("VmRSS: 5 kB\n"));
  const auto own = memory_usage();
  ASSERT_TRUE(own);
  EXPECT_GT(own->resident, std::uint64_t{1} << 20);
  EXPECT_GE(own->peak, own->resident);
}

TEST(ProcFields, AreFoundAtTheStartOfALineOnly) {
  EXPECT_EQ(proc_text("a model name : x\nmodel name\t: Some CPU 9000 \n", "model name"), "Some CPU 9000");
  EXPECT_EQ(proc_text("model names: x\nmodel name:\n", "model name"), "");
  EXPECT_FALSE(proc_number("VmRSS: much\n", "VmRSS"));
}

TEST(BuildInfo, HashesTheRunningProgram) {
  const BuildInfo build = describe_build();
  std::ifstream file(std::filesystem::read_symlink("/proc/self/exe"), std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  ASSERT_FALSE(bytes.empty());
  EXPECT_EQ(build.binary_sha256, sha256_hex(bytes));
  EXPECT_FALSE(build.version.empty());
  EXPECT_FALSE(build.commit.empty());
}

TEST(DeviceInfo, NamesTheProcessor) {
  const DeviceInfo host = describe_host();
  EXPECT_FALSE(host.name.empty());
  EXPECT_THAT(host.driver, HasSubstr("Linux"));
  EXPECT_GT(host.memory_bytes, std::uint64_t{1} << 28);
}

}  // namespace
}  // namespace mererun
