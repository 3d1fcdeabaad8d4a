#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "convert/quantise_affine.h"
#include "convert/recipe.h"
#include "convert/shard_file.h"

namespace mererun {

struct ConversionOptions {
  std::filesystem::path source;    // a BF16, F16 or F32 checkpoint in the Hugging Face or MLX layout
  std::filesystem::path output;    // must not exist
  std::filesystem::path mtp_root;  // where the draft head is; empty: search, as loading does
  std::string id;                  // stated in the result's mererun.json; empty: none
  Recipe::Options recipe;
  std::uint64_t max_shard_bytes = std::uint64_t{5} << 30;
  int threads = 0;  // 0: one a physical core
};

struct ConversionReport {
  std::filesystem::path source;
  std::filesystem::path output;
  std::string profile;
  AffineFormat main;
  std::uint64_t source_bytes = 0;
  std::uint64_t output_bytes = 0;  // of all tensors
  ErrorTable precisions;           // by (bits, group)
  int shards = 0;                  // files with weights
  int resumed_shards = 0;          // that an earlier, stopped run had finished
  bool has_head = false;
  int draft_rows = 0;               // of the coarse output matrix; 0: none
  std::int64_t vision_tensors = 0;  // left out
  bool is_loadable = false;         // every tensor was bound as loading would
  std::vector<std::string> notes;
};

/// Bytes of the source seen so far and in all: each is read twice, once to convert and once to compare.
/// False stops the conversion; the same call goes on from there.
using ConversionProgress = std::function<bool(std::uint64_t done, std::uint64_t total)>;

/// Converts a checkpoint to the MLX affine layout.
///
/// Works in `<output>.converting`, which is renamed to `output` when all is written, read back and compared,
/// and bound once as loading binds it. A stopped or killed run leaves that folder; the same call finishes it,
/// keeping the shards whose checksums still hold. Memory: some tens of MiB, whatever the model: pages of the
/// mapped source and result are given back as they are used.
///
/// Errors: kInvalidArgument for an output that exists or options that do not fit; kNotFound for a missing
/// source, shard or head; kCorruptData for a source that does not load or has NaN or infinity; kUnsupported
/// for a quantised source; kIo for a full disk or a limit on file size (the process must ignore SIGXFSZ);
/// kCancelled.
/// Thread-safety: calls with different outputs may run at the same time.
ConversionReport convert_checkpoint(const ConversionOptions& options,
                                    const ConversionProgress& progress = {});

/// {source, output, profile, bits, groupSize, bytes{source, output}, bitsPerWeight, precisions[{bits,
/// groupSize, weights, relativeError}], shards{total, resumed}, draftHead{found, coarseRows}, visionTensors,
/// loadable, notes[]}.
nlohmann::ordered_json conversion_json(const ConversionReport& report);

/// Stored bits a weight, scales and biases included, over all quantised matrices; 0 without one.
double bits_per_weight(const ConversionReport& report);

}  // namespace mererun
