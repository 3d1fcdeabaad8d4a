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

std::vector<std::pair<std::string, std::string>> exit_status_meanings() {
  return {{"0", "done"},
          {"1", "ran, with a negative verdict (parity, qualification)"},
          {"64", "usage or validation"},
          {"65", "corrupt or contradictory checkpoint"},
          {"66", "model or file not found"},
          {"69", "unsupported feature, device or backend"},
          {"70", "device or internal failure"},
          {"71", "out of memory"},
          {"74", "input or output failed"},
          {"130, 143", "interrupted, terminated"}};
}

}  // namespace mererun
