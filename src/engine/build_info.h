#pragma once

#include <string>

namespace mererun {

/// Which program made a report.
struct BuildInfo {
  std::string version;
  std::string commit;
  std::string binary_sha256;  // of the running executable's file, 64 hex digits
};

/// Reads and hashes the running executable. Errors: those of MappedFile.
BuildInfo describe_build();

}  // namespace mererun
