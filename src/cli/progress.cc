#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

#include "base/log.h"

namespace mererun {

namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr int kBarCells = 24;

std::string byte_count(double bytes) {
  constexpr double kStep = 1024;
  if (bytes < kStep * kStep) return fmt::format("{:.0f} KiB", bytes / kStep);
  if (bytes < kStep * kStep * kStep) return fmt::format("{:.1f} MiB", bytes / (kStep * kStep));
  return fmt::format("{:.2f} GiB", bytes / (kStep * kStep * kStep));
}

// What was computed in this phase; reused tokens cost nothing and would flatter the rate.
double rate(const Progress& progress, double seconds) {
  return seconds > 0 ? static_cast<double>(progress.done - progress.reused) / seconds : 0;
}

}  // namespace

std::string progress_line(const Progress& progress, double seconds, int columns) {
  const double share =
      progress.total > 0
          ? std::clamp(static_cast<double>(progress.done) / static_cast<double>(progress.total), 0.0, 1.0)
          : 0;
  const int filled = static_cast<int>(share * kBarCells);
  std::string bar(static_cast<std::size_t>(filled), '=');
  if (filled < kBarCells) bar += '>';
  bar.resize(kBarCells, ' ');

  std::string line = fmt::format("{} [{}] ", progress.phase, bar);
  if (progress.unit == ProgressUnit::kBytes) {
    line += fmt::format("{} of {}, {}/s", byte_count(static_cast<double>(progress.done)),
                        byte_count(static_cast<double>(progress.total)), byte_count(rate(progress, seconds)));
  } else {
    line += fmt::format("{}/{} tokens, {:.0f} tok/s", progress.done, progress.total, rate(progress, seconds));
  }
  if (progress.reused > 0) line += fmt::format(", {} reused", progress.reused);
  // A line as wide as the terminal would wrap, and its first part could not be erased.
  if (static_cast<int>(line.size()) >= columns)
    line.resize(static_cast<std::size_t>(std::max(columns - 1, 0)));
  return line;
}

std::string progress_fields(const Progress& progress, double seconds) {
  const std::string_view unit = progress.unit == ProgressUnit::kBytes ? "bytes" : "tokens";
  std::string fields = fmt::format("{}={}", unit, progress.done);
  if (progress.reused > 0) fields += fmt::format(" reused={}", progress.reused);
  return fields + fmt::format(" seconds={:.3f} {}_per_second={:.1f}", seconds, unit, rate(progress, seconds));
}

ProgressDisplay::ProgressDisplay(Mode mode, int columns, std::function<double()> now,
                                 std::function<void(std::string_view)> write)
    : mode_(mode), columns_(columns), now_(std::move(now)), write_(std::move(write)) {}

ProgressDisplay::ProgressDisplay(Mode mode, int columns)
    : ProgressDisplay(
          mode, columns,
          [] {
            return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
          },
          [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }) {}

ProgressDisplay::~ProgressDisplay() {
  try {
    if (is_drawn_) erase();
  } catch (...) {
    // A bar left on the screen is no reason to end the program.
  }
}

void ProgressDisplay::update(const Progress& progress) {
  if (mode_ == Mode::kQuiet) return;
  const double at = now_();
  if (is_active_ && progress.phase != progress_.phase) finish();
  if (!is_active_) {
    is_active_ = true;
    started_ = at;
    drawn_ = -std::numeric_limits<double>::infinity();
  }
  progress_ = progress;
  if (mode_ == Mode::kBar && at - drawn_ >= kRedrawSeconds) draw(at);
}

void ProgressDisplay::draw(double at) {
  write_("\r" + progress_line(progress_, at - started_, columns_) + "\x1b[K");
  is_drawn_ = true;
  drawn_ = at;
}

void ProgressDisplay::erase() {
  write_("\r\x1b[K");
  is_drawn_ = false;
}

void ProgressDisplay::finish() {
  if (!is_active_) return;
  is_active_ = false;
  if (is_drawn_) erase();
  if (mode_ == Mode::kLog)
    log(LogLevel::kInfo, progress_.phase, "{}", progress_fields(progress_, now_() - started_));
}

}  // namespace mererun
