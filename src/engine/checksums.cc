#include "engine/checksums.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/sha256.h"
#include "checkpoint/mapped_file.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kStepBytes = std::size_t{16} << 20;  // between two calls of progress

}  // namespace

ChecksumResult compare_checksums(const fs::path& folder, const ModelManifest& manifest,
                                 const std::function<bool(std::uint64_t, std::uint64_t)>& progress) {
  ChecksumResult result;
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  for (const ModelManifest::File& stated : manifest.files) total += stated.bytes;
  for (const ModelManifest::File& stated : manifest.files) {
    const fs::path path = folder / stated.path;
    const auto problem = [&](const std::string& expected, const std::string& got) {
      result.problems.push_back(
          fmt::format("{}: expected {} (mererun.json), got {}", path.string(), expected, got));
    };
    if (!fs::is_regular_file(path)) {
      problem(fmt::format("a file of {} bytes", stated.bytes), "no such file");
      continue;
    }
    const MappedFile file(path);
    if (file.size() != stated.bytes) {
      problem(fmt::format("{} bytes", stated.bytes), fmt::format("{}", file.size()));
      continue;
    }
    file.advise_sequential();
    Sha256 hash;
    for (std::size_t at = 0; at < file.size(); at += kStepBytes) {
      if (progress && !progress(done, total)) {
        result.is_stopped = true;
        return result;
      }
      const auto part = file.bytes().subspan(at, std::min<std::size_t>(kStepBytes, file.size() - at));
      hash.update(part);
      done += part.size();
    }
    const std::string got = hash.finish_hex();
    if (got == stated.sha256) {
      ++result.matched;
    } else {
      problem("SHA-256 " + stated.sha256, got);
    }
  }
  return result;
}

}  // namespace mererun
