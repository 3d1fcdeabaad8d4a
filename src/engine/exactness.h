#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace mererun {

/// What a build promises about bits on one backend (docs/exactness.md, "Levels").
struct Exactness {
  std::vector<std::string> levels;  // "E1", "E2", ... that tests of this build hold
  int contract_version = 0;
  std::string backend;
};

/// Of the backend that `backend` stands for. Errors: kUnsupported for one that this build lacks.
Exactness exactness_of(Backend backend);

}  // namespace mererun
