#include "cli/interrupts.h"

#include <unistd.h>
#include <csignal>

#include "base/error.h"
#include "cli/exit_codes.h"

namespace mererun {

namespace {

static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

// Signal handlers reach no object, so the state is the process's.
std::atomic<bool> interrupted{false};
std::atomic<bool> terminated{false};
std::atomic<bool> holds_termination{false};
std::atomic<bool> is_installed{false};

extern "C" void handle_signal(int signal) {
  if (signal == SIGINT) {
    if (interrupted.exchange(true)) _exit(kExitInterrupted);
  } else {
    if (!holds_termination.load() || terminated.exchange(true)) _exit(kExitTerminated);
  }
}

void install(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART
  sigaction(signal, &action, nullptr);
}

}  // namespace

Interrupts::Interrupts() {
  MERERUN_CHECK(!is_installed.exchange(true), "one Interrupts object a process");
  interrupted = false;
  terminated = false;
  holds_termination = false;
  install(SIGINT, handle_signal);
  install(SIGTERM, handle_signal);
}

Interrupts::~Interrupts() {
  install(SIGINT, SIG_DFL);
  install(SIGTERM, SIG_DFL);
  is_installed = false;
}

bool Interrupts::termination_requested() const { return terminated.load(); }

const std::atomic<bool>& Interrupts::flag() const { return interrupted; }

void Interrupts::clear() { interrupted = false; }

void Interrupts::hold_termination() { holds_termination = true; }

}  // namespace mererun
