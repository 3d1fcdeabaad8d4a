#pragma once

#include <string_view>

namespace mererun {

/// Version of the numeric contract (docs/exactness.md): part of every snapshot key, receipt and golden hash.
inline constexpr int kNumericContractVersion = 1;

/// Version of the project, "0.1.0".
std::string_view project_version();

/// Commit the build was configured from, shortened; "unknown" outside a git checkout.
std::string_view build_commit();

}  // namespace mererun
