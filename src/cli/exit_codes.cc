#include "cli/exit_codes.h"

namespace mererun {

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return kExitUsage;
    case ErrorCode::kNotFound: return kExitNotFound;
    case ErrorCode::kCorruptData: return kExitCorrupt;
    case ErrorCode::kUnsupported: return kExitUnsupported;
    case ErrorCode::kOutOfMemory: return kExitOutOfMemory;
    case ErrorCode::kDevice:
    case ErrorCode::kNumeric:
    case ErrorCode::kInternal: return kExitFailure;
    case ErrorCode::kIo: return kExitIo;
    case ErrorCode::kCancelled: return kExitInterrupted;
  }
  return kExitFailure;
}

}  // namespace mererun
