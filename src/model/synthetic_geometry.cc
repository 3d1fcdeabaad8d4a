#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "model/synthetic_table.h"
#include "model/synthetic_weights.h"

namespace mererun {
namespace {

constexpr int kAttentionInterval = 4;  // every fourth layer, in all of them
constexpr std::uint64_t kTableBytes = std::uint64_t{64} << 20;

/// What the published configurations share.
ModelConfig common(std::string model_type, Family family) {
  ModelConfig c;
  c.model_type = std::move(model_type);
  c.family = family;
  c.vocabulary = 248320;
  c.max_positions = 262144;
  c.head_dim = 256;
  c.linear_key_heads = 16;
  c.linear_key_dim = 128;
  c.linear_value_dim = 128;
  c.conv_kernel = 4;
  c.mtp_layers = 1;
  c.rope.theta = 1e7;
  c.rope.rotary_dims = 64;
  return c;
}

SyntheticGeometry q38_27b() {
  ModelConfig c = common("qwen3_5", Family::kDense);
  c.layers = 64;
  c.hidden = 5120;
  c.heads = 24;
  c.kv_heads = 4;
  c.linear_value_heads = 48;
  c.intermediate = 17408;
  return {.name = "q38-27b", .config = c, .width = 8, .width_cap = 9};
}

SyntheticGeometry ornith_35b() {
  ModelConfig c = common("qwen3_5_moe", Family::kMoe);
  c.layers = 40;
  c.hidden = 2048;
  c.heads = 16;
  c.kv_heads = 2;
  c.linear_value_heads = 32;
  c.experts = 256;
  c.experts_per_token = 8;
  c.moe_intermediate = 512;
  c.shared_intermediate = 512;
  return {.name = "ornith-35b", .config = c};
}

/// What the small ones share.
ModelConfig small(std::string model_type, Family family) {
  ModelConfig c = common(std::move(model_type), family);
  c.layers = 8;
  c.vocabulary = 8192;
  c.heads = 4;
  c.kv_heads = 1;
  c.linear_key_heads = 2;
  c.linear_value_heads = 4;
  return c;
}

SyntheticGeometry small_dense() {
  ModelConfig c = small("qwen3_5", Family::kDense);
  c.hidden = 512;
  c.intermediate = 1280;
  return {.name = "small-dense", .config = c, .width = 8, .width_cap = 9};
}

SyntheticGeometry small_moe() {
  ModelConfig c = small("qwen3_5_moe", Family::kMoe);
  c.hidden = 384;
  c.experts = 32;
  c.experts_per_token = 4;
  c.moe_intermediate = 64;
  c.shared_intermediate = 256;
  return {.name = "small-moe", .config = c};
}

FlashConfig flash_parts(int lowrank, int budget, int embed_dim) {
  FlashConfig f;
  f.streams = 4;
  f.stream_lowrank = lowrank;
  f.indexer_heads = 4;
  f.indexer_kv_heads = 1;
  f.indexer_head_dim = 128;
  f.indexer_budget = budget;
  f.indexer_compress_ratio = 4;
  f.ngram_layers = {1};
  f.ngram_embed_dim = embed_dim;
  f.ngram_conv_kernel = 4;
  f.ngram_size = 3;
  f.heads_per_ngram = 8;
  f.ngram_vocab_multiple = 128;
  f.ngram_parts = 1;
  return f;
}

SyntheticGeometry flash_next() {
  ModelConfig c = common("qwen4_exp", Family::kFlashNext);
  c.layers = 48;
  c.hidden = 2560;
  c.heads = 24;
  c.kv_heads = 2;
  c.linear_value_heads = 48;
  c.output_gate = OutputGate::kSigmoid;
  c.experts = 512;
  c.experts_per_token = 10;
  c.moe_intermediate = 640;
  c.shared_intermediate = 640;
  c.flash = flash_parts(320, 2048, 2560);
  c.flash->ngram_cut = 248044;
  return {.name = "flash-next", .config = c, .certified_width = 32};
}

SyntheticGeometry small_flash() {
  ModelConfig c = small_moe().config;
  c.model_type = "qwen4_exp";
  c.family = Family::kFlashNext;
  c.output_gate = OutputGate::kSigmoid;
  c.flash = flash_parts(64, 256, 512);
  c.flash->ngram_cut = 8191;
  return {.name = "small-flash", .config = c, .certified_width = 32};
}

constexpr std::array kMakers = {q38_27b, ornith_35b, flash_next, small_dense, small_moe, small_flash};

SyntheticGeometry find(std::string_view name) {
  for (const auto make : kMakers) {
    SyntheticGeometry geometry = make();
    if (geometry.name == name) return geometry;
  }
  std::string known;
  for (const std::string& other : synthetic_geometry_names()) known += (known.empty() ? "" : ", ") + other;
  fail_expected(ErrorCode::kInvalidArgument, "synthetic geometry", "one of " + known,
                fmt::format("'{}'", name));
}

}  // namespace

std::vector<std::string> synthetic_geometry_names() {
  std::vector<std::string> names;
  for (const auto make : kMakers) names.push_back(make().name);
  return names;
}

SyntheticGeometry make_synthetic_geometry(std::string_view name, std::optional<int> layers,
                                          std::uint64_t table_bytes) {
  SyntheticGeometry geometry = find(name);
  ModelConfig& c = geometry.config;
  if (c.flash) {
    c.flash->ngram_vocab_base = ngram_base_for_bytes(*c.flash, table_bytes == 0 ? kTableBytes : table_bytes);
  } else if (table_bytes != 0) {
    fail_expected(ErrorCode::kInvalidArgument, fmt::format("table of synthetic geometry {}", name),
                  "none: only Flash-Next has one", fmt::format("{} bytes", table_bytes));
  }
  if (layers) {
    if (*layers < kAttentionInterval || *layers > c.layers) {
      fail_expected(ErrorCode::kInvalidArgument, fmt::format("layers of synthetic geometry {}", name),
                    fmt::format("{} to {}", kAttentionInterval, c.layers), fmt::format("{}", *layers));
    }
    c.layers = *layers;
  }
  for (int i = 1; i <= c.layers; ++i)
    c.kinds.push_back(i % kAttentionInterval == 0 ? LayerKind::kAttention : LayerKind::kDeltaNet);
  return geometry;
}

}  // namespace mererun
