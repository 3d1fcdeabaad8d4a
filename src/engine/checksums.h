#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model/manifest.h"

namespace mererun {

struct ChecksumResult {
  int matched = 0;
  bool is_stopped = false;
  std::vector<std::string> problems;  // files that are missing, of another size or of another content
};

/// Compares every file that the manifest lists with its size and SHA-256. A file of the wrong size is not
/// read. `progress` (may be empty) gets bytes done and bytes in all; false stops. Errors: kIo.
ChecksumResult compare_checksums(
    const std::filesystem::path& folder, const ModelManifest& manifest,
    const std::function<bool(std::uint64_t done, std::uint64_t total)>& progress = {});

}  // namespace mererun
