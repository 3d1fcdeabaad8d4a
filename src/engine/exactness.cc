#include "engine/exactness.h"

#include "base/build_info.h"
#include "base/error.h"

namespace mererun {

Exactness exactness_of(Backend backend) {
  if (backend == Backend::kCuda) {
    throw Error(ErrorCode::kUnsupported, "backend: expected cpu in this build, got cuda");
  }
  // E4 (requests that share a pass) and E6 (GPUs) join the list with the code they speak of.
  return {.levels = {"E1", "E2", "E3", "E5"},
          .contract_version = kNumericContractVersion,
          .backend = backend == Backend::kReference ? "reference" : "cpu"};
}

}  // namespace mererun
