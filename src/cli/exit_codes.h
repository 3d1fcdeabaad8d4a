#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace mererun {

/// Exit statuses of the program (docs/options.md).
enum ExitCode : int {
  kExitDone = 0,
  kExitNegativeVerdict = 1,  // ran; parity or qualification did not hold
  kExitUsage = 64,
  kExitCorrupt = 65,
  kExitNotFound = 66,
  kExitUnsupported = 69,
  kExitFailure = 70,  // device or internal
  kExitOutOfMemory = 71,
  kExitIo = 74,
  kExitInterrupted = 130,
  kExitTerminated = 143,
};

int exit_code_of(ErrorCode code);

/// Each status, as help and manual write it, with its meaning.
std::vector<std::pair<std::string, std::string>> exit_status_meanings();

}  // namespace mererun
