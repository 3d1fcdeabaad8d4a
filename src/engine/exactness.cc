#include "engine/exactness.h"

#include "base/build_info.h"

namespace mererun {

Exactness exactness_of(Backend chosen) {
  // E4 (requests that share a pass) joins the list with the code it speaks of.
  Exactness exactness{.levels = {"E1", "E2", "E3", "E5"},
                      .contract_version = kNumericContractVersion,
                      .backend = std::string(name_of(chosen))};
  if (chosen == Backend::kCuda) exactness.levels.emplace_back("E6");
  return exactness;
}

Exactness exactness_of(Backend wanted, int device) {
  return exactness_of(choose_backend(wanted, device).backend);
}

}  // namespace mererun
