#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "engine/exactness.h"
#include "engine/memory_plan.h"
#include "model/host_weights.h"
#include "model/resolve.h"

namespace mererun {

struct InspectionOptions {
  ModelRequest model;
  ModelSurroundings surroundings;
  std::filesystem::path mtp_root;  // empty: search
  Backend backend = Backend::kAuto;
  int device = 0;
  int prefill_chunk = 1024;  // decides the arena
  bool lists_tensors = false;
  bool compares_checksums = false;
  bool needs_checksums = true;  // if compared: a folder that states none has a problem
  bool scans_values = false;
};

/// Called while data is read: "checksums" or "verify", bytes done and bytes in all. False stops the reading.
using InspectionProgress =
    std::function<bool(std::string_view phase, std::uint64_t done, std::uint64_t total)>;

/// One tensor as its file holds it.
struct InspectedTensor {
  std::string name;  // canonical
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
  std::string file;
};

struct InspectedHead {
  std::string place;  // name_of(HeadPlace)
  std::filesystem::path path;
  std::string dtype;  // of most of its weights
  int bits = 0;
  int group = 0;
  std::optional<int> vocabulary_rows;  // ids it may propose; no value: all
  bool shortlist = false;              // has a coarse output matrix
};

/// A file that is hashed as a whole.
struct InspectedFile {
  std::string name;
  std::string sha256;
};

/// What a checkpoint folder holds, needs and lacks. Parts that its problems hide have no value.
struct Inspection {
  std::string id;
  std::filesystem::path folder;
  ModelTraits traits;
  RepositoryRevision target;
  RepositoryRevision mtp;
  std::optional<ModelConfig> config;
  std::string fingerprint;  // empty: the weights do not load
  int context = 0;          // default C

  std::int64_t tensor_count = 0;  // draft head and vision tower included
  std::uint64_t tensor_bytes = 0;
  std::vector<TensorGroup> groups;
  std::vector<InspectedTensor> tensors;  // on request

  std::optional<InspectedHead> head;
  std::optional<NormConvention> trunk_norms;
  std::optional<NormConvention> head_norms;
  std::optional<InspectedFile> chat_template;  // hash of the template's text
  std::optional<InspectedFile> tokenizer;
  int tokenizer_vocabulary = 0;
  std::vector<MemoryNeed> memory;
  Exactness exactness;
  std::string qualification = "none";

  std::optional<int> checksums_matched;           // on request: files that are as mererun.json says
  std::optional<std::uint64_t> verified_tensors;  // on request
  bool is_stopped = false;                        // reading ended early

  std::vector<std::string> problems;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;
  bool is_unsupported = false;  // sound as far as seen, but not served by this build
};

/// Describes a checkpoint from its headers; data is read only for checksums and the scan. Whatever is wrong
/// with the folder is listed in `problems`, beside all that could still be read.
///
/// Errors: kNotFound if there is no such model or folder; kInvalidArgument for a request that contradicts
/// itself or the folder; kUnsupported for a backend that this build lacks.
Inspection inspect_model(const InspectionOptions& options, const InspectionProgress& progress = {});

/// {id, path, fingerprint, family, config, tensors, head, norms, template, tokenizer, memory, exactness,
/// qualification, sources, problems}; `checksums` and `verified` where they were asked for. Parts without a
/// value are absent.
nlohmann::json inspection_json(const Inspection& inspection);

}  // namespace mererun
