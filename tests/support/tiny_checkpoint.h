#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/norm_convention.h"
#include "tests/support/safetensors_writer.h"

namespace mererun::testing {

/// `model.language_model.X`, `language_model.model.X` or, in text-only exports, `model.X`.
enum class TinyNaming { kHf, kMlx, kTextOnly };
/// How experts are stored: switch_mlp stacks, fused gate_up_proj, the same transposed, or one by one.
enum class TinyExperts { kStacked, kFused, kTransposed, kPerExpert };
enum class TinyHead { kNone, kShards, kSidecarFile, kSidecarFolder };

/// Bits 0 means BF16.
struct TinyPrecision {
  int bits = 4;
  int group = 64;
};

/// A tiny model with random weights and the way it is written down. Models with equal seeds, sizes and
/// structure have the same weights whatever the layout: BF16 twins in two layouts load to equal bits. The
/// defaults are a dense MLX checkpoint: three DeltaNet layers and one of attention with six query heads to
/// one KV head, a draft head in mtp/, everything in 4 bits with groups of 64.
struct TinySpec {
  std::uint64_t seed = 1;
  bool moe = false;
  bool tied = false;

  int hidden = 128;
  int layers = 4;  // every fourth is attention
  int vocabulary = 256;
  int max_positions = 4096;
  int heads = 6;
  int kv_heads = 1;
  int head_dim = 32;
  int linear_key_heads = 2;
  int linear_value_heads = 4;
  int linear_key_dim = 32;
  int linear_value_dim = 32;
  int conv_kernel = 4;
  int intermediate = 192;
  int experts = 8;
  int experts_per_token = 2;
  int moe_intermediate = 64;
  int shared_intermediate = 64;

  TinyNaming naming = TinyNaming::kMlx;
  bool conv_taps_last = false;  // [C, 1, K] instead of [C, K, 1]
  NormConvention norms = NormConvention::kFinal;
  NormConvention head_norms = NormConvention::kFinal;
  TinyExperts expert_layout = TinyExperts::kStacked;
  TinyExperts head_expert_layout = TinyExperts::kStacked;
  TinyHead head = TinyHead::kSidecarFolder;
  bool bare_head_names = true;  // in sidecars: without `mtp.`

  TinyPrecision precision;
  std::optional<TinyPrecision> gate_precision;  // router and shared-expert gate; absent: as the rest
  std::optional<TinyPrecision> head_precision;  // absent: as the trunk
  /// Modules with a precision of their own, by canonical path ("layers.3.self_attn.q_proj", "embed_tokens",
  /// "layers.0.mlp.switch_mlp.down_proj"); they get an entry in `quantization`.
  std::map<std::string, TinyPrecision> modules;
};

/// The dense and the mixture-of-experts model (8 experts, top 2, shared expert, query factor 8, gates in 8
/// bits).
TinySpec tiny_dense();
TinySpec tiny_moe();
/// The same model as a Hugging Face checkpoint: BF16, `model.language_model.` names, fused experts,
/// zero-centred norms, [C, 1, K] conv weights, the head inside.
TinySpec hugging_face(TinySpec spec);
/// The same model in BF16 in the MLX layout.
TinySpec in_bf16(TinySpec spec);

/// A checkpoint folder in memory, to be changed before it is written. Names are as stored.
struct TinyFiles {
  std::map<std::string, std::vector<StoredTensor>> weights;  // by file, relative to the folder
  std::map<std::string, std::string> texts;                  // config.json, generation_config.json, ...

  /// Errors: std::out_of_range if no file holds the tensor.
  StoredTensor& tensor(std::string_view name);
  void erase(std::string_view name);
  void rename(std::string_view name, std::string to);
  void write(const std::filesystem::path& folder) const;
};

TinyFiles make_tiny_checkpoint(const TinySpec& spec);
/// Makes and writes; returns `folder`.
std::filesystem::path write_tiny_checkpoint(const std::filesystem::path& folder, const TinySpec& spec);

}  // namespace mererun::testing
