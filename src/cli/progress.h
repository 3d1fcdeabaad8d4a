#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace mererun {

enum class ProgressUnit { kBytes, kTokens };

/// How far a phase has come.
struct Progress {
  std::string phase;  // "load", "prefill": the event's name in logs
  ProgressUnit unit = ProgressUnit::kTokens;
  std::int64_t done = 0;
  std::int64_t total = 0;
  std::int64_t reused = 0;  // part of `done` that was not computed again
};

/// The bar as one line of at most `columns` characters, without a line end:
/// "prefill [=====>    ] 2500/4944 tokens 812 tok/s, 1024 reused".
std::string progress_line(const Progress& progress, double seconds, int columns);

/// The same as key=value fields: "tokens=4944 reused=1024 seconds=4.83 tokens_per_second=811.6".
std::string progress_fields(const Progress& progress, double seconds);

/// Shows phases on stderr: on a terminal a bar, redrawn at most ten times a second and erased at the end;
/// elsewhere one log line at level info when a phase ends. A quiet one shows nothing.
///
/// Thread-safety: one thread only.
class ProgressDisplay {
 public:
  enum class Mode { kBar, kLog, kQuiet };

  /// `now` gives seconds; `write` receives what goes to the terminal.
  ProgressDisplay(Mode mode, int columns, std::function<double()> now,
                  std::function<void(std::string_view)> write);
  /// Writes to stderr, by the system's steady clock.
  ProgressDisplay(Mode mode, int columns);
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  /// A new phase name starts a phase and ends the one before; its clock starts with this call.
  void update(const Progress& progress);

  /// Ends the phase: erases the bar or logs the line. Called before anything else is printed.
  void finish();

 private:
  void draw(double at);
  void erase();

  Mode mode_;
  int columns_;
  std::function<double()> now_;
  std::function<void(std::string_view)> write_;
  Progress progress_;
  bool is_active_ = false;
  bool is_drawn_ = false;
  double started_ = 0;
  double drawn_ = 0;
};

}  // namespace mererun
