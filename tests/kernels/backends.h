#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "kernels/reference/reference_ops.h"

namespace mererun {

/// A backend the op tests run on.
struct Backend {
  std::string name;
  std::unique_ptr<Ops> (*make)();
};

inline void PrintTo(const Backend& backend, std::ostream* os) { *os << backend.name; }

/// Every backend of this build that the machine can run.
inline std::vector<Backend> backends() {
  std::vector<Backend> all = {
      {"reference", make_reference_ops},
      {"reference_baseline", reference::make_baseline_reference_ops},
  };
  all.push_back({"cpu", [] { return make_cpu_ops({}); }});
  if (cuda_device_count() > 0) all.push_back({"cuda", [] { return make_cuda_ops({}); }});
  return all;
}

/// Base of the op tests: the backend under test, and the definition it must reproduce bit for bit.
class OpTest : public testing::TestWithParam<Backend> {
 protected:
  std::unique_ptr<Ops> ops_ = GetParam().make();
  std::unique_ptr<Ops> definition_ = reference::make_baseline_reference_ops();
};

#define MERERUN_FOR_ALL_BACKENDS(suite)                                    \
  INSTANTIATE_TEST_SUITE_P(Backends, suite, testing::ValuesIn(backends()), \
                           [](const auto& backend) { return backend.param.name; })

}  // namespace mererun
