#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/recipe.h"
#include "convert/source_rows.h"
#include "model/norm_convention.h"

namespace mererun {

class Checkpoint;

/// One matrix or vector of the result. A quantised one becomes three tensors: `.weight`, `.scales`,
/// `.biases`.
struct PlannedTensor {
  std::string name;  // as written: a quantised one without ".weight"
  SourceRows source;
  std::optional<AffineFormat> format = {};  // no value: written unquantised
  DType dtype = DType::kBF16;               // of an unquantised one
  std::vector<std::int64_t> shape = {};  // logical; the last axis is `source.in` unless it is a conv weight
  bool adds_one = false;                 // a zero-centred norm that is written as the final factor
  bool is_copied = false;                // integers: bytes as they are

  /// Bytes of all its tensors in the result.
  std::uint64_t bytes() const;
  /// Bytes of the three arrays of a quantised one.
  std::uint64_t code_bytes() const;
  std::uint64_t scale_bytes() const;
};

/// One safetensors file of the result.
struct PlannedShard {
  std::string file;  // relative to the folder: "model-00001-of-00003.safetensors", "mtp/model.safetensors"
  std::vector<PlannedTensor> tensors;
};

struct ConversionPlan {
  std::vector<PlannedShard> shards;  // the trunk's, then the head's
  std::uint64_t source_bytes = 0;    // read in one pass over everything
  std::uint64_t bytes = 0;           // of all tensors of the result
  std::int64_t vision_tensors = 0;   // left out
  int draft_rows = 0;                // of the coarse output matrix; 0: none is made
  bool has_head = false;
};

struct PlanInput {
  const Checkpoint& trunk;
  const Checkpoint* head = nullptr;  // null: none, or in the trunk's own files
  const ModelConfig& config;
  const Recipe& recipe;
  NormConvention trunk_norms = NormConvention::kFinal;
  std::optional<NormConvention> head_norms;         // no value: no head
  std::optional<DraftVocabulary> draft_vocabulary;  // what the head may propose
  std::uint64_t max_shard_bytes = std::uint64_t{5} << 30;
};

/// Decides every tensor of the result: name, shape, precision and where its values come from. Reads the
/// norms' data, nothing else.
///
/// Names are those of the MLX layout: `language_model.model.X`, `language_model.lm_head`, and in the head's
/// file `X` without `mtp.`. Conv weights become [C, K, 1], experts three stacks under `switch_mlp`, norms
/// final (those of Flash-Next stay as they are). Floats become BF16, except A_log, which keeps its type.
///
/// Errors: kUnsupported, naming the tensor, for a source that is quantised already or has values of a type
/// that is not converted.
ConversionPlan make_plan(const PlanInput& input);

/// Whether a canonical name is that of a norm whose stored form has a convention ("layers.0.input_layernorm.
/// weight", "mtp.norm.weight"); the gated norm of DeltaNet has none.
bool has_norm_convention(std::string_view canonical);

}  // namespace mererun
