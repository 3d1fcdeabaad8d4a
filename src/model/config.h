#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace mererun {

enum class Family { kDense, kMoe, kFlashNext };
/// "dense", "moe" or "flash-next".
std::string_view name_of(Family family);

enum class LayerKind { kDeltaNet, kAttention };
/// "linear_attention" or "full_attention", the spelling of config.json.
std::string_view name_of(LayerKind kind);

/// Activation of the DeltaNet output gate: silu for dense and MoE, sigmoid for Flash-Next.
enum class OutputGate { kSwish, kSigmoid };

enum class RopeScaling { kDefault, kYarn };

/// Rotary embedding of the full-attention layers.
/// Source: docs/model-math.md, rotary embedding; YaRN (Peng et al. 2023), section 3.
struct RopeConfig {
  double theta = 0;
  int rotary_dims = 0;  // leading elements of a head that are rotated; even, <= head_dim
  RopeScaling scaling = RopeScaling::kDefault;
  double factor = 1;                       // yarn: context extension
  int original_max_positions = 0;          // yarn: trained context
  double beta_fast = 32;                   // yarn
  double beta_slow = 1;                    // yarn
  std::optional<double> attention_factor;  // yarn: scale of cos and sin; absent: 0.1 ln(factor) + 1
  std::vector<int> mrope_section;          // frequencies per image axis; text needs none of it
};

/// Bits and group of one module as `quantization` in config.json states them.
struct ModuleQuantization {
  bool quantised = true;  // false: the entry says `false`
  int bits = 0;
  int group = 0;
  std::string key;  // the entry as config.json spells it, for messages
};

/// The `quantization` dictionary. It is only compared with the shapes, which decide.
struct QuantizationConfig {
  bool present = false;
  int bits = 4;
  int group = 64;
  /// By module path with the optional `model.` / `language_model.` prefixes removed, without `.weight`.
  std::map<std::string, ModuleQuantization, std::less<>> modules;
};

/// Sampling defaults of generation_config.json; absent where no file states them.
struct GenerationDefaults {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<int> top_k;
  std::optional<double> repetition_penalty;
};

/// What only `qwen4_exp` has: four residual streams, sparse attention with an indexer, hashed n-gram
/// embedding.
struct FlashConfig {
  int streams = 0;         // hc_count
  int stream_lowrank = 0;  // hc_lowrank
  int indexer_heads = 0;
  int indexer_kv_heads = 0;
  int indexer_head_dim = 0;
  int indexer_budget = 0;  // tokens
  int indexer_compress_ratio = 0;
  std::vector<int> ngram_layers;  // layer indices from 0; config.json counts from 1
  int ngram_embed_dim = 0;
  int ngram_conv_kernel = 0;
  int ngram_size = 0;
  int heads_per_ngram = 0;
  int ngram_vocab_base = 0;
  int ngram_vocab_multiple = 0;
  int ngram_parts = 0;
  int ngram_seed = 1234;  // not in the file; the class default
  TokenId ngram_cut = 0;  // end-of-text: cuts the context of the n-grams

  int ngram_heads() const { return (ngram_size - 1) * heads_per_ngram; }   // table rows a token reads
  int ngram_width() const { return ngram_embed_dim / ngram_heads(); }      // columns of a table row
  int ngram_past() const { return (ngram_conv_kernel - 1) * ngram_size; }  // rows the convolution looks back
  int budget_blocks() const { return indexer_budget / indexer_compress_ratio; }
  bool has_ngrams() const { return !ngram_layers.empty(); }
  bool has_ngrams_at(int layer) const;
};

/// The checked numbers of config.json and generation_config.json. Every dimension is positive and in range,
/// and the products the model forms from them fit an int.
struct ModelConfig {
  std::string model_type;  // "qwen3_5", "qwen3_5_moe" or "qwen4_exp"
  Family family = Family::kDense;

  int hidden = 0;                // H
  int layers = 0;                // L
  std::vector<LayerKind> kinds;  // [L]; after loading, what the tensors say
  int vocabulary = 0;            // V
  int max_positions = 0;
  double rms_eps = 1e-6;
  bool tied = false;  // the output matrix is the embedding

  int heads = 0;     // Hq
  int kv_heads = 0;  // Hkv, divides Hq
  int head_dim = 0;  // Dh
  RopeConfig rope;

  int linear_key_heads = 0;    // Nk
  int linear_value_heads = 0;  // Nv, a multiple of Nk
  int linear_key_dim = 0;      // Dk
  int linear_value_dim = 0;    // Dv
  int conv_kernel = 0;         // K
  OutputGate output_gate = OutputGate::kSwish;

  int intermediate = 0;         // F of a dense feed-forward; 0 in MoE models
  int experts = 0;              // E; 0 in dense models
  int experts_per_token = 0;    // Ea
  int moe_intermediate = 0;     // width of one routed expert
  int shared_intermediate = 0;  // width of the shared expert
  bool norm_topk_prob = true;

  int mtp_layers = 0;  // what the config promises; the files decide whether there is a head
  std::optional<FlashConfig> flash;

  std::vector<TokenId> eos_ids;  // union of all places that state some, generation_config.json first
  GenerationDefaults generation;
  QuantizationConfig quantization;
  std::vector<std::string> warnings;  // contradictions that have a safe reading

  bool is_moe() const { return experts > 0 && experts_per_token > 0; }
  int key_dim() const { return linear_key_heads * linear_key_dim; }              // Nk * Dk
  int value_dim() const { return linear_value_heads * linear_value_dim; }        // Nv * Dv
  int conv_dim() const { return 2 * key_dim() + value_dim(); }                   // C: channels of q, k and v
  int attention_dim() const { return heads * head_dim; }                         // Hq * Dh
  int kv_dim() const { return kv_heads * head_dim; }                             // Hkv * Dh
  int residual_dim() const { return flash ? flash->streams * hidden : hidden; }  // columns of a residual row
  int count(LayerKind kind) const;
};

/// Reads a config from JSON text. `generation_json` may be empty. `where` names the folder in messages.
///
/// Text parameters are taken from `text_config` or the top level, rope from `rope_parameters`, `rope_scaling`
/// or the older flat keys; unknown keys are ignored.
///
/// Errors: kCorruptData for bad JSON, a missing key or a number out of range, naming key, expected and got;
///         kUnsupported for another model type, activation, rope or quantisation mode.
/// Thread-safety: thread-safe.
[[nodiscard]] ModelConfig parse_config(std::string_view config_json, std::string_view generation_json,
                                       std::string_view where);

/// Reads `folder`/config.json and, if present, `folder`/generation_config.json.
/// Errors: as parse_config; kNotFound without config.json.
[[nodiscard]] ModelConfig load_config(const std::filesystem::path& folder);

}  // namespace mererun
