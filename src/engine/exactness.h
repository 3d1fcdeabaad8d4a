#pragma once

#include <string>
#include <vector>

#include "engine/backend.h"

namespace mererun {

/// What a build promises about bits on one backend (docs/exactness.md, "Levels").
struct Exactness {
  std::vector<std::string> levels;  // "E1", "E2", ... that tests of this build hold
  int contract_version = 0;
  std::string backend;
};

/// Of a backend that computes (not kAuto).
Exactness exactness_of(Backend chosen);
/// Of the backend that `wanted` stands for on this machine. Errors: those of choose_backend.
Exactness exactness_of(Backend wanted, int device);

}  // namespace mererun
