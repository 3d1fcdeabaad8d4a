#include "engine/build_info.h"

#include <array>
#include <cstring>
#include <fstream>
#include <span>

#include "base/build_info.h"
#include "base/error.h"
#include "base/sha256.h"

namespace mererun {
namespace {

std::string file_sha256(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_expected(ErrorCode::kIo, path, "a readable file", std::strerror(errno));
  Sha256 hash;
  std::array<char, 1 << 16> part;
  while (file.read(part.data(), part.size()), file.gcount() > 0)
    hash.update(std::as_bytes(std::span(part.data(), static_cast<std::size_t>(file.gcount()))));
  if (file.bad()) fail_expected(ErrorCode::kIo, path, "a readable file", "a failed read");
  return hash.finish_hex();
}

}  // namespace

BuildInfo describe_build() {
  return {.version = std::string(project_version()),
          .commit = std::string(build_commit()),
          .binary_sha256 = file_sha256("/proc/self/exe")};
}

}  // namespace mererun
