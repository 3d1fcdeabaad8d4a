#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/draft_vocabulary.h"
#include "model/flash_host_weights.h"
#include "model/norm_convention.h"

namespace mererun {

struct LoadOptions;

/// Where a set of files comes from.
struct RepositoryRevision {
  std::string repository;
  std::string revision;
  bool empty() const { return repository.empty(); }
};

/// `mererun.json`, the optional statement beside a checkpoint: what it is, where it comes from, what its
/// files must be, and conventions that the data alone does not settle.
struct ModelManifest {
  struct File {
    std::string path;  // relative to the folder, inside it
    std::uint64_t bytes = 0;
    std::string sha256;  // 64 lower-case hex digits
  };

  std::string id;  // empty if not stated
  RepositoryRevision target;
  RepositoryRevision mtp;
  std::vector<File> files;
  std::optional<NormConvention> norm_convention;
  std::optional<NormConvention> mtp_norm_convention;
  std::optional<std::vector<TokenRange>> draft_vocabulary;
  std::optional<HeadNormSpan> head_norm_span;  // Flash-Next
  std::optional<bool> expects_retrieval;       // whether qualification asks the long-context question

  /// Sets the options that a mererun.json can state: norm conventions, the head's norm, draft vocabulary.
  void apply_to(LoadOptions& options) const;
};

/// Errors: kCorruptData for bad JSON, a wrong type, a path that leaves the folder or a bad checksum;
///         kUnsupported for another `format` than 1.
[[nodiscard]] ModelManifest parse_manifest(std::string_view json, std::string_view where);

/// Reads `folder`/mererun.json; no value without one.
[[nodiscard]] std::optional<ModelManifest> load_manifest(const std::filesystem::path& folder);

}  // namespace mererun
