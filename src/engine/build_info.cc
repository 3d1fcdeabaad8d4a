#include "engine/build_info.h"

#include "base/build_info.h"
#include "base/sha256.h"
#include "checkpoint/mapped_file.h"

namespace mererun {

BuildInfo describe_build() {
  return {.version = std::string(project_version()),
          .commit = std::string(build_commit()),
          .binary_sha256 = sha256_hex(MappedFile("/proc/self/exe").bytes())};
}

}  // namespace mererun
