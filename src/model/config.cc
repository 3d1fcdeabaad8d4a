#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/config_json.h"
#include "model/json_fields.h"
#include "model/quantization.h"
#include "model/sampling_ranges.h"

namespace mererun {

namespace {

// Upper ends of plausible dimensions. They keep every product of two of them that the model forms inside an
// int.
constexpr int kMaxHidden = 1 << 17;
constexpr int kMaxLayers = 1024;
constexpr int kMaxHeads = 1024;
constexpr int kMaxHeadDim = 1024;
constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxExperts = 1 << 14;
constexpr int kMaxVocabulary = 1 << 24;
constexpr int kMaxPositions = 1 << 28;

struct Sources {
  JsonFields top;
  JsonFields text;  // text_config, or the top level of a text-only export
};

Family read_family(const Sources& from, ModelConfig& config) {
  config.model_type = from.top.text_or("model_type", from.text.text_or("model_type", ""));
  std::string_view type = config.model_type;
  if (type.ends_with("_text")) type.remove_suffix(std::string_view("_text").size());
  if (type == "qwen3_5") return Family::kDense;
  if (type == "qwen3_5_moe") return Family::kMoe;
  if (type == "qwen4_exp") return Family::kFlashNext;
  if (type == "qwen3_5_mtp") {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: model_type: expected a whole model, got \"{}\"", from.top.where(),
                            config.model_type),
                "this folder holds only a draft head; name it with --mtp-root beside its model");
  }
  fail_expected(ErrorCode::kUnsupported, fmt::format("{}: model_type", from.top.where()),
                "qwen3_5, qwen3_5_moe or qwen4_exp", config.model_type.empty() ? "none" : config.model_type);
}

LayerKind layer_kind(const JsonFields& text, std::string_view name) {
  if (name == "linear_attention") return LayerKind::kDeltaNet;
  // Flash-Next exports name its attention layers in several ways; all mean the same layer.
  if (name == "full_attention" || name == "deepseek_sparse_attention" || name == "qwen_sparse_attention" ||
      name == "hybrid_indexed") {
    return LayerKind::kAttention;
  }
  fail_expected(ErrorCode::kUnsupported, fmt::format("{}: layer_types", text.where()),
                "linear_attention or full_attention", name);
}

void read_layers(const JsonFields& text, ModelConfig& config) {
  config.layers = text.integer("num_hidden_layers", 1, kMaxLayers);
  if (text.has("layer_types")) {
    for (const std::string& name : text.texts("layer_types")) config.kinds.push_back(layer_kind(text, name));
    if (config.kinds.size() != static_cast<std::size_t>(config.layers)) {
      fail_expected(ErrorCode::kCorruptData, fmt::format("{}: layer_types", text.where()),
                    fmt::format("{} entries (num_hidden_layers)", config.layers),
                    fmt::format("{} entries", config.kinds.size()));
    }
    return;
  }
  const int interval = text.integer_or("full_attention_interval", 4, 1, kMaxLayers);
  for (int i = 0; i < config.layers; ++i) {
    config.kinds.push_back((i + 1) % interval == 0 ? LayerKind::kAttention : LayerKind::kDeltaNet);
  }
}

void read_attention(const JsonFields& text, ModelConfig& config) {
  config.heads = text.integer("num_attention_heads", 1, kMaxHeads);
  config.kv_heads = text.integer("num_key_value_heads", 1, kMaxHeads);
  config.head_dim = text.integer_or("head_dim", 256, 2, kMaxHeadDim);
  if (config.heads % config.kv_heads != 0) {
    text.fail("num_key_value_heads", fmt::format("a divisor of num_attention_heads ({})", config.heads));
  }
  config.linear_key_heads = text.integer("linear_num_key_heads", 1, kMaxHeads);
  config.linear_value_heads = text.integer("linear_num_value_heads", 1, kMaxHeads);
  config.linear_key_dim = text.integer_or("linear_key_head_dim", 128, 1, kMaxHeadDim);
  config.linear_value_dim = text.integer_or("linear_value_head_dim", 128, 1, kMaxHeadDim);
  config.conv_kernel = text.integer_or("linear_conv_kernel_dim", 4, 2, 16);
  if (config.linear_value_heads % config.linear_key_heads != 0) {
    text.fail("linear_num_value_heads",
              fmt::format("a multiple of linear_num_key_heads ({})", config.linear_key_heads));
  }
  const std::string gate =
      text.text_or("output_gate_type", config.family == Family::kFlashNext ? "sigmoid" : "swish");
  if (gate == "swish" || gate == "silu") {
    config.output_gate = OutputGate::kSwish;
  } else if (gate == "sigmoid") {
    config.output_gate = OutputGate::kSigmoid;
  } else {
    fail_expected(ErrorCode::kUnsupported, fmt::format("{}: output_gate_type", text.where()),
                  "swish, silu or sigmoid", gate);
  }
}

/// What the formulas of these families take for granted, where a config can say otherwise.
void refuse_variants(const JsonFields& text) {
  const auto refuse = [&](std::string_view key, std::string_view expected, std::string_view got) {
    fail_expected(ErrorCode::kUnsupported, fmt::format("{}: {}", text.where(), key), expected, got);
  };
  if (!text.boolean_or("attn_output_gate", true)) refuse("attn_output_gate", "true", "false");
  if (text.boolean_or("attention_bias", false)) refuse("attention_bias", "false", "true");
  const std::string activation = text.text_or("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") refuse("hidden_act", "silu", activation);
  if (text.boolean_or("mtp_use_dedicated_embeddings", false))
    refuse("mtp_use_dedicated_embeddings", "false", "true");
  if (!text.integers("mlp_only_layers", 0, kMaxLayers).empty())
    refuse("mlp_only_layers", "an empty list", "layers");
  const int step = text.integer_or("decoder_sparse_step", 1, 0, kMaxLayers);
  if (step != 1) refuse("decoder_sparse_step", "1", std::to_string(step));
}

void read_feed_forward(const JsonFields& text, ModelConfig& config) {
  if (config.family == Family::kDense) {
    config.intermediate = text.integer("intermediate_size", 1, kMaxWidth);
    return;
  }
  config.experts = text.integer("num_experts", 1, kMaxExperts);
  config.experts_per_token = text.integer("num_experts_per_tok", 1, config.experts);
  config.moe_intermediate = text.integer("moe_intermediate_size", 1, kMaxWidth);
  config.shared_intermediate = text.integer("shared_expert_intermediate_size", 1, kMaxWidth);
  config.norm_topk_prob = text.boolean_or("norm_topk_prob", true);
}

std::string rope_type(const JsonFields& object) {
  return object.text_or("rope_type", object.text_or("type", ""));
}

void read_yarn(const JsonFields& object, RopeConfig& rope) {
  rope.scaling = RopeScaling::kYarn;
  rope.factor = object.number("factor", {1, 1024});
  rope.original_max_positions = object.integer("original_max_position_embeddings", 1, kMaxPositions);
  rope.beta_fast = object.number_or("beta_fast", 32, {1e-3, 1e6});
  rope.beta_slow = object.number_or("beta_slow", 1, {1e-3, 1e6});
  rope.attention_factor = object.maybe_number("attention_factor", {1e-3, 1e3});
}

/// Inside `rope_parameters` (or `rope_scaling`) first, then the flat key of older exports.
double rope_number(const Sources& from, const std::optional<JsonFields>& inner, std::string_view key,
                   std::optional<double> fallback, double max, ModelConfig& config) {
  const std::optional<double> inside = inner ? inner->maybe_number(key, {1e-6, max}) : std::nullopt;
  const std::optional<double> outside =
      from.text.has(key) ? from.text.maybe_number(key, {1e-6, max}) : from.top.maybe_number(key, {1e-6, max});
  if (inside && outside && *inside != *outside) {
    config.warnings.push_back(
        fmt::format("{}: {}: {} inside and {} outside of the rope parameters; the inner one is used",
                    from.text.where(), key, *inside, *outside));
  }
  if (inside) return *inside;
  if (outside) return *outside;
  if (!fallback) from.text.fail(key, "a number, in rope_parameters or beside it");
  return *fallback;
}

void read_rope(const Sources& from, ModelConfig& config) {
  std::optional<JsonFields> parameters = from.text.object("rope_parameters");
  std::optional<JsonFields> scaling = from.text.object("rope_scaling");
  if (!parameters) parameters = from.top.object("rope_parameters");
  if (!scaling) scaling = from.top.object("rope_scaling");
  std::string type = parameters ? rope_type(*parameters) : "";
  const std::string scaling_type = scaling ? rope_type(*scaling) : "";
  if (!type.empty() && !scaling_type.empty() && type != scaling_type) {
    fail_expected(ErrorCode::kCorruptData, fmt::format("{}: rope_scaling", from.text.where()),
                  fmt::format("the type of rope_parameters (\"{}\")", type),
                  fmt::format("\"{}\"", scaling_type));
  }
  const JsonFields* typed = !type.empty() ? &*parameters : !scaling_type.empty() ? &*scaling : nullptr;
  if (type.empty()) type = scaling_type;
  if (type == "yarn") {
    read_yarn(*typed, config.rope);
  } else if (!type.empty() && type != "default") {
    fail_expected(ErrorCode::kUnsupported, fmt::format("{}: rope_type", typed->where()), "default or yarn",
                  type);
  }
  const std::optional<JsonFields>& inner = parameters ? parameters : scaling;
  config.rope.theta = rope_number(from, inner, "rope_theta", std::nullopt, 1e15, config);
  const double share = rope_number(from, inner, "partial_rotary_factor", 0.25, 1, config);
  const double dims = config.head_dim * share;
  config.rope.rotary_dims = static_cast<int>(dims);
  if (config.rope.rotary_dims != dims || config.rope.rotary_dims < 2 || config.rope.rotary_dims % 2 != 0) {
    fail_expected(ErrorCode::kCorruptData, fmt::format("{}: partial_rotary_factor", from.text.where()),
                  fmt::format("an even number of the {} head dimensions", config.head_dim),
                  fmt::format("{}", dims));
  }
  if (inner) config.rope.mrope_section = inner->integers("mrope_section", 0, kMaxHeadDim);
}

/// What the formulas of Flash-Next take for granted, where a config can say otherwise.
void refuse_flash_variants(const JsonFields& text, const FlashConfig& flash) {
  const auto require = [&](std::string_view key, int expected, int got) {
    if (got == expected) return;
    fail_expected(ErrorCode::kUnsupported, fmt::format("{}: {}", text.where(), key), std::to_string(expected),
                  std::to_string(got));
  };
  require("hc_count", 4, flash.streams);
  require("indexer_kv_heads", 1, flash.indexer_kv_heads);
  require("indexer_compress_ratio", 4, flash.indexer_compress_ratio);
  if (flash.ngram_layers.size() > 1) {
    fail_expected(ErrorCode::kUnsupported, fmt::format("{}: ple_layer_ids", text.where()),
                  "at most one layer", fmt::format("{}", flash.ngram_layers.size()));
  }
}

/// The id of the end of a text: what the text parameters state before what the whole model does.
TokenId read_ngram_cut(const Sources& from, int vocabulary) {
  for (const JsonFields& place : {from.text, from.top}) {
    for (const char* key : {"eos_token_id", "bos_token_id"}) {
      if (const std::vector<int> ids = place.integers(key, 0, vocabulary - 1); !ids.empty())
        return ids.front();
    }
  }
  from.text.fail("eos_token_id", "the id of the end of a text, which cuts the context of n-grams");
}

void read_flash(const Sources& from, ModelConfig& config) {
  const JsonFields& text = from.text;
  FlashConfig flash;
  flash.streams = text.integer("hc_count", 1, 64);
  flash.stream_lowrank = text.integer("hc_lowrank", 1, kMaxHidden);
  flash.indexer_heads = text.integer("indexer_n_heads", 1, kMaxHeads);
  flash.indexer_kv_heads = text.integer_or("indexer_kv_heads", 1, 1, kMaxHeads);
  flash.indexer_head_dim = text.integer("indexer_head_dim", 1, kMaxHeadDim);
  flash.indexer_budget = text.integer("indexer_budget", 1, kMaxWidth);
  flash.indexer_compress_ratio = text.integer("indexer_compress_ratio", 1, 1024);
  // The file counts layers from one.
  for (const int layer : text.integers("ple_layer_ids", 1, config.layers))
    flash.ngram_layers.push_back(layer - 1);
  flash.ngram_embed_dim = text.integer("ple_embed_dim", 1, kMaxHidden);
  flash.ngram_conv_kernel = text.integer_or("ple_conv_kernel_size", 4, 2, 16);
  flash.ngram_size = text.integer("ngram_size", 2, 16);
  flash.heads_per_ngram = text.integer("heads_per_ngram", 1, 256);
  flash.ngram_vocab_base = text.integer("ngram_vocab_size_base", 1, 1 << 30);
  flash.ngram_vocab_multiple = text.integer_or("make_ngram_vocab_size_divisible_by", 128, 1, 1 << 20);
  flash.ngram_parts = text.integer("split_ngram_parts", 1, 1 << 16);
  if (flash.has_ngrams()) flash.ngram_cut = read_ngram_cut(from, config.vocabulary);
  refuse_flash_variants(text, flash);
  if (flash.ngram_embed_dim % flash.ngram_heads() != 0)
    text.fail("ple_embed_dim", fmt::format("a multiple of {} (heads of all n-grams)", flash.ngram_heads()));
  if (flash.indexer_budget % flash.indexer_compress_ratio != 0)
    text.fail("indexer_budget", "a multiple of indexer_compress_ratio");
  if (flash.indexer_head_dim < config.rope.rotary_dims)
    text.fail("indexer_head_dim", fmt::format("at least the rotary dims ({})", config.rope.rotary_dims));
  config.flash = flash;
}

void add_ids(std::vector<TokenId>& ids, const JsonFields& fields, std::string_view key, int vocabulary) {
  for (const int id : fields.integers(key, 0, vocabulary - 1)) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

/// Takes what `fields` states and nothing stated it before.
void merge_generation(GenerationDefaults& defaults, const JsonFields& fields) {
  if (!defaults.do_sample && fields.has("do_sample"))
    defaults.do_sample = fields.boolean_or("do_sample", false);
  if (!defaults.temperature)
    defaults.temperature = fields.maybe_number("temperature", sampling_ranges::kTemperature);
  if (!defaults.top_p) defaults.top_p = fields.maybe_number("top_p", sampling_ranges::kTopP);
  if (!defaults.min_p) defaults.min_p = fields.maybe_number("min_p", sampling_ranges::kMinP);
  // Some files write -1 for off.
  if (!defaults.top_k && fields.has("top_k"))
    defaults.top_k = std::max(0, fields.integer("top_k", -1, kMaxVocabulary));
  if (!defaults.repetition_penalty)
    defaults.repetition_penalty =
        fields.maybe_number("repetition_penalty", sampling_ranges::kRepetitionPenalty);
}

void read_generation(const Sources& from, const std::optional<JsonFields>& file, ModelConfig& config) {
  std::vector<JsonFields> places;
  if (file) places.push_back(*file);
  if (const auto nested = from.top.object("generation_config")) places.push_back(*nested);
  places.push_back(from.top);
  places.push_back(from.text);
  for (const JsonFields& place : places) {
    add_ids(config.eos_ids, place, "eos_token_id", config.vocabulary);
    merge_generation(config.generation, place);
  }
}

bool read_tied(const Sources& from, ModelConfig& config) {
  const bool top =
      from.top.boolean_or("tie_word_embeddings", from.text.boolean_or("tie_word_embeddings", false));
  if (from.text.boolean_or("tie_word_embeddings", top) != top) {
    config.warnings.push_back(
        fmt::format("{}: tie_word_embeddings: the top level says {}, text_config the opposite; "
                    "the top level is used",
                    from.top.where(), top));
  }
  return top;
}

ModelConfig read_config(const Json& document, const Json* generation, std::string_view where) {
  const auto name = [&](std::string_view file) {
    return where.empty() ? std::string(file) : fmt::format("{}/{}", where, file);
  };
  const JsonFields top(document, name("config.json"));
  const Sources from{top, top.object("text_config").value_or(top)};
  const JsonFields& text = from.text;

  ModelConfig config;
  config.family = read_family(from, config);
  config.hidden = text.integer("hidden_size", 1, kMaxHidden);
  config.vocabulary = text.integer("vocab_size", 1, kMaxVocabulary);
  config.max_positions = text.integer("max_position_embeddings", 1, kMaxPositions);
  config.rms_eps = text.number_or("rms_norm_eps", 1e-6, {0, 1});
  config.tied = read_tied(from, config);
  refuse_variants(text);
  read_layers(text, config);
  read_attention(text, config);
  read_rope(from, config);
  read_feed_forward(text, config);
  if (config.family == Family::kFlashNext) read_flash(from, config);
  config.mtp_layers = text.integer_or("mtp_num_hidden_layers", 0, 0, 64);
  config.quantization = parse_quantization(top);

  std::optional<JsonFields> generation_fields;
  if (generation != nullptr) generation_fields.emplace(*generation, name("generation_config.json"));
  read_generation(from, generation_fields, config);
  return config;
}

}  // namespace

std::string_view name_of(Family family) {
  switch (family) {
    case Family::kDense: return "dense";
    case Family::kMoe: return "moe";
    case Family::kFlashNext: return "flash-next";
  }
  return "unknown";
}

std::string_view name_of(LayerKind kind) {
  return kind == LayerKind::kDeltaNet ? "linear_attention" : "full_attention";
}

bool FlashConfig::has_ngrams_at(int layer) const {
  return std::find(ngram_layers.begin(), ngram_layers.end(), layer) != ngram_layers.end();
}

int ModelConfig::count(LayerKind kind) const {
  return static_cast<int>(std::count(kinds.begin(), kinds.end(), kind));
}

ModelConfig parse_config(std::string_view config_json, std::string_view generation_json,
                         std::string_view where) {
  const auto name = [&](std::string_view file) {
    return where.empty() ? std::string(file) : fmt::format("{}/{}", where, file);
  };
  const Json document = parse_json_object(config_json, name("config.json"));
  if (generation_json.empty()) return read_config(document, nullptr, where);
  const Json generation = parse_json_object(generation_json, name("generation_config.json"));
  return read_config(document, &generation, where);
}

ModelConfig load_config(const std::filesystem::path& folder) {
  const Json document = read_json_file(folder / "config.json");
  const std::optional<Json> generation = read_optional_json_file(folder / "generation_config.json");
  return read_config(document, generation ? &*generation : nullptr, folder.string());
}

}  // namespace mererun
