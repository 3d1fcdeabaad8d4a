#include "cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/log.h"

namespace mererun {

namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A display with a clock set by hand that records every write.
struct Screen {
  double time = 100;
  std::vector<std::string> writes;

  ProgressDisplay display(ProgressDisplay::Mode mode) {
    return ProgressDisplay(
        mode, 80, [this] { return time; }, [this](std::string_view text) { writes.emplace_back(text); });
  }
};

Progress prefill(std::int64_t done) {
  return {.phase = "prefill", .unit = ProgressUnit::kTokens, .done = done, .total = 4944, .reused = 0};
}

TEST(ProgressLine, ShowsSharesAndRates) {
  const Progress tokens{
      .phase = "prefill", .unit = ProgressUnit::kTokens, .done = 3000, .total = 4000, .reused = 1000};
  EXPECT_EQ(progress_line(tokens, 2.0, 100),
            "prefill [==================>     ] 3000/4000 tokens, 1000 tok/s, 1000 reused");
  const Progress bytes{
      .phase = "load", .unit = ProgressUnit::kBytes, .done = 3 << 20, .total = 3 << 20, .reused = 0};
  EXPECT_EQ(progress_line(bytes, 0.5, 100), "load [========================] 3.0 MiB of 3.0 MiB, 6.0 MiB/s");
}

TEST(ProgressLine, NeverFillsTheTerminal) {
  for (const int columns : {1, 10, 40, 80}) {
    EXPECT_LT(progress_line(prefill(100), 1.0, columns).size(), static_cast<std::size_t>(columns));
  }
}

TEST(ProgressLine, NothingToDoIsNoDivision) {
  EXPECT_THAT(progress_line(
                  {.phase = "load", .unit = ProgressUnit::kBytes, .done = 0, .total = 0, .reused = 0}, 0, 80),
              HasSubstr("0 KiB of 0 KiB"));
}

TEST(ProgressDisplay, RedrawsAtMostTenTimesASecondAndErases) {
  Screen screen;
  {
    auto display = screen.display(ProgressDisplay::Mode::kBar);
    for (int i = 0; i < 1000; ++i) {
      display.update(prefill(i));
      screen.time += 0.001;
    }
    EXPECT_GE(screen.writes.size(), 9u);
    EXPECT_LE(screen.writes.size(), 11u);
    display.finish();
    EXPECT_EQ(screen.writes.back(), "\r\x1b[K");
    const auto count = screen.writes.size();
    display.finish();
    EXPECT_EQ(screen.writes.size(), count);
  }
  EXPECT_EQ(screen.writes.back(), "\r\x1b[K");
}

TEST(ProgressDisplay, ADestroyedBarIsErased) {
  Screen screen;
  { screen.display(ProgressDisplay::Mode::kBar).update(prefill(1)); }
  ASSERT_EQ(screen.writes.size(), 2u);
  EXPECT_EQ(screen.writes.back(), "\r\x1b[K");
}

TEST(ProgressDisplay, ElsewhereOneLogLineAPhase) {
  Screen screen;
  set_log_level(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  {
    auto display = screen.display(ProgressDisplay::Mode::kLog);
    display.update({.phase = "load", .unit = ProgressUnit::kBytes, .done = 10, .total = 20, .reused = 0});
    screen.time += 2;
    display.update({.phase = "load", .unit = ProgressUnit::kBytes, .done = 20, .total = 20, .reused = 0});
    display.update(prefill(0));
    screen.time += 1;
    display.update(prefill(4944));
    display.finish();
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::kWarn);
  EXPECT_THAT(screen.writes, IsEmpty());
  EXPECT_THAT(log, HasSubstr("event=load bytes=20 seconds=2.000 bytes_per_second=10.0\n"));
  EXPECT_THAT(log, HasSubstr("event=prefill tokens=4944 seconds=1.000 tokens_per_second=4944.0\n"));
}

TEST(ProgressDisplay, QuietIsSilent) {
  Screen screen;
  set_log_level(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  auto display = screen.display(ProgressDisplay::Mode::kQuiet);
  display.update(prefill(5));
  display.finish();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  set_log_level(LogLevel::kWarn);
  EXPECT_THAT(screen.writes, IsEmpty());
}

}  // namespace

}  // namespace mererun
