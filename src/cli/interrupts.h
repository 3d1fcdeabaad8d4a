#pragma once

#include <atomic>

namespace mererun {

/// Ctrl-C and termination. While one exists, the first SIGINT only sets a flag, which the engine reads at the
/// round boundary; the second ends the process at once with status 130. SIGTERM ends it with 143, unless
/// `hold_termination` turned it into a flag as well (the server finishes its requests first).
///
/// System calls are interrupted, not restarted, so a blocked read of stdin returns.
/// Thread-safety: one object a process, made and destroyed by the main thread; the flags may be read
/// anywhere.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  bool requested() const { return flag().load(std::memory_order_relaxed); }
  bool termination_requested() const;

  /// The flag itself, for an engine call that takes a cancellation flag. True once Ctrl-C was pressed.
  const std::atomic<bool>& flag() const;

  /// Forgets an interrupt that has been answered: in a conversation, the turn ended and the next may begin.
  void clear();

  /// From now on SIGTERM sets `termination_requested()` (the second one exits).
  void hold_termination();
};

}  // namespace mererun
