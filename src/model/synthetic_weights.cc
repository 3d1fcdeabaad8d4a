#include "model/synthetic_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/split_mix.h"
#include "base/thread_pool.h"
#include "device/buffer.h"
#include "model/flash_tables.h"
#include "model/synthetic_table.h"
#include "model/weight_tables.h"

namespace mererun {
namespace {

constexpr int kBits = 4;
constexpr int kGateBits = 8;
constexpr int kFlashExpertBits = 3;
constexpr int kGroup = 64;
constexpr std::size_t kWindowStep = 4160;  // bytes between the starts of two matrices: no power of two
constexpr std::size_t kWindows = 1024;

/// Scales and biases of matrices of one row length and precision: as long as the largest of them needs.
struct ScaleKey {
  int in = 0;
  int bits = 0;
  auto operator<=>(const ScaleKey&) const = default;
};
struct ScaleArrays {
  std::size_t groups = 0;
  std::vector<std::uint16_t> scales, biases;  // BF16
};

/// Everything that the sources borrow from.
struct Arena {
  Buffer codes;
  std::map<ScaleKey, ScaleArrays> scales;
  SyntheticTable table;  // of Flash-Next
};

float uniform(std::uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-24F; }

/// Hands out matrices and vectors of a model. Used twice: the first walk only measures, the second binds.
class Maker {
 public:
  Maker(const ModelConfig& config, std::uint64_t seed) : config_(config), seed_(seed) {}

  HostWeights walk() {
    next_window_ = 0;
    next_vector_ = 0;
    HostWeights w;
    w.config = config_;
    w.embed = matrix("embed_tokens", 1, config_.vocabulary, config_.hidden, kBits);
    w.lm_head = matrix("lm_head", 1, config_.vocabulary, config_.hidden, kBits);
    if (config_.flash) {
      w.final_mixer = std::make_shared<HostHyperConnection>();
      mixer(*w.final_mixer, "hyper_connection_mixer.");
    } else {
      w.final_norm = ones(config_.hidden);
    }
    for (int i = 0; i < config_.layers; ++i)
      w.layers.push_back(layer(fmt::format("layers.{}.", i), config_.kinds[static_cast<std::size_t>(i)],
                               config_.flash && config_.flash->has_ngrams_at(i)));
    HostDraftHead head;
    if (config_.flash) {
      flash_head(head);
    } else {
      bind(head, draft_head_matrices(config_), "mtp.", kBits);
      for (const auto& row : draft_head_vectors(config_)) head.*row.field = ones(row.length);
    }
    head.layer = layer("mtp.layers.0.", LayerKind::kAttention);
    head.vocabulary = DraftVocabulary::standard(config_.vocabulary);
    w.head = std::move(head);
    w.report.mapped_bytes = bytes_;
    w.report.head_place = HeadPlace::kTargetShards;
    return w;
  }

  /// Makes the memory that the next walk binds to.
  void allocate(const std::atomic<bool>* cancelled) {
    arena_ = std::make_shared<Arena>();
    arena_->codes = allocate_host(largest_ + kWindowStep * kWindows);
    ThreadPool pool(0);
    fill_codes(pool);
    arena_->scales = std::move(scales_);
    if (config_.flash && config_.flash->has_ngrams())
      arena_->table = make_synthetic_table(*config_.flash, config_.vocabulary, seed_, cancelled);
    for (auto& [key, arrays] : arena_->scales) fill_scales(pool, key, arrays);
    bytes_ = 0;
  }

  std::shared_ptr<const void> memory() const { return arena_; }

 private:
  LinearSource matrix(std::string name, int experts, int out, int in, int bits) {
    LinearSource source{.name = std::move(name),
                        .format = WeightFormat::kAffine,
                        .experts = experts,
                        .out = out,
                        .in = in,
                        .expert_stride = 0,
                        .bits = bits,
                        .group = kGroup,
                        .dtype = DType::kBF16,
                        .weight = nullptr,
                        .scales = nullptr,
                        .biases = nullptr};
    MERERUN_CHECK(in % kGroup == 0, "synthetic rows are whole groups");
    const auto rows = static_cast<std::size_t>(experts) * static_cast<std::size_t>(out);
    const std::size_t window = kWindowStep * (next_window_++ % kWindows);
    bytes_ += static_cast<std::uint64_t>(source.bytes());
    if (arena_ == nullptr) {
      largest_ = std::max(largest_, rows * static_cast<std::size_t>(source.weight_row_bytes()));
      std::size_t& groups = scales_[{in, bits}].groups;
      groups = std::max(groups, rows * static_cast<std::size_t>(in / kGroup));
    } else {
      const ScaleArrays& arrays = arena_->scales.at({in, bits});
      source.weight = arena_->codes.as<std::byte>() + window;
      source.scales = arrays.scales.data();
      source.biases = arrays.biases.data();
    }
    return source;
  }

  std::vector<float> ones(int n) const { return std::vector<float>(static_cast<std::size_t>(n), 1.0F); }
  std::vector<float> between(int n, float low, float high) {
    const std::uint64_t stream = ++next_vector_ << 40;
    std::vector<float> values(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = low + (high - low) * uniform(synthetic_bits(seed_ + 1, stream + i));
    return values;
  }

  template <typename T, std::size_t N>
  void bind(T& part, const std::array<MatrixRow<T>, N>& rows, const std::string& prefix, int bits) {
    for (const auto& row : rows) part.*row.field = matrix(prefix + row.module, 1, row.out, row.in, bits);
  }

  void mixer(HostHyperConnection& part, const std::string& prefix) {
    bind(part, hyper_connection_matrices(config_), prefix, kBits);
    part.norm = ones(config_.residual_dim());
  }

  void connection(HostHyperConnection& part, const std::string& prefix) {
    mixer(part, prefix);
    bind(part, inject_matrices(config_), prefix, kBits);
  }

  void flash_head(HostDraftHead& head) {
    head.flash = std::make_shared<HostFlashHead>();
    bind(*head.flash, flash_head_matrices(config_), "mtp.", kBits);
    for (const auto& row : flash_head_vectors(config_)) head.*row.field = ones(row.length);
    mixer(head.flash->mixer, "mtp.hyper_connection_mixer.");
  }

  void flash_layer(HostLayer& layer, const std::string& prefix, LayerKind kind, bool has_ngram) {
    layer.flash = std::make_shared<HostFlashLayer>();
    HostFlashLayer& flash = *layer.flash;
    connection(flash.mixer_connection, prefix + "attn_hyper_connection.");
    connection(flash.feed_forward_connection, prefix + "mlp_hyper_connection.");
    if (kind == LayerKind::kAttention) {
      flash.indexer.emplace();
      bind(*flash.indexer, indexer_matrices(config_), prefix + "self_attn.indexer.", kBits);
      for (const auto& row : indexer_vectors(config_)) *flash.indexer.*row.field = ones(row.length);
    }
    if (!has_ngram) return;
    HostNgram& ngram = flash.ngram.emplace();
    bind(ngram, ngram_matrices(config_), prefix + "ple.", kBits);
    for (const auto& row : ngram_vectors(config_)) ngram.*row.field = ones(row.length);
    ngram.conv = between(config_.residual_dim() * config_.flash->ngram_conv_kernel, -0.4F, 0.4F);
    if (arena_ != nullptr) ngram.table = arena_->table.host;
  }

  HostLayer layer(const std::string& prefix, LayerKind kind, bool has_ngram = false) {
    HostLayer out;
    if (config_.flash) {
      flash_layer(out, prefix, kind, has_ngram);
    } else {
      for (const auto& row : layer_vectors(config_)) out.*row.field = ones(row.length);
    }
    if (kind == LayerKind::kAttention) {
      HostAttention attention;
      bind(attention, attention_matrices(config_), prefix, kBits);
      for (const auto& row : attention_vectors(config_)) attention.*row.field = ones(row.length);
      out.mixer = std::move(attention);
    } else {
      HostDeltaNet delta;
      bind(delta, delta_net_matrices(config_), prefix, kBits);
      for (const auto& row : delta_net_vectors(config_)) delta.*row.field = ones(row.length);
      delta.conv = between(config_.conv_dim() * config_.conv_kernel, -0.5F, 0.5F);
      delta.a_log = between(config_.linear_value_heads, -1.6F, 1.8F);
      delta.dt_bias = between(config_.linear_value_heads, -5.0F, 0.0F);
      out.mixer = std::move(delta);
    }
    if (config_.is_moe()) {
      HostMoe moe;
      bind(moe, moe_matrices(config_), prefix, kGateBits);
      bind(moe.shared, shared_expert_matrices(config_), prefix, kBits);
      for (const auto& row : expert_stacks(config_))
        moe.*row.field = matrix(prefix + "mlp.switch_mlp." + row.projection, config_.experts, row.out, row.in,
                                config_.flash ? kFlashExpertBits : kBits);
      out.feed_forward = std::move(moe);
    } else {
      HostMlp mlp;
      bind(mlp, mlp_matrices(config_), prefix, kBits);
      out.feed_forward = std::move(mlp);
    }
    return out;
  }

  void fill_codes(ThreadPool& pool) {
    auto* words = arena_->codes.as<std::uint64_t>();
    const auto n = static_cast<std::int64_t>(arena_->codes.size_bytes() / sizeof(std::uint64_t));
    pool.parallel_for(n, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i)
        words[i] = synthetic_bits(seed_, static_cast<std::uint64_t>(i));
    });
  }

  /// scale in [0.75, 1.25] / (sqrt(in) 2^(bits - 1)), bias = -scale (2^bits - 1) / 2.
  void fill_scales(ThreadPool& pool, const ScaleKey& key, ScaleArrays& arrays) {
    arrays.scales.resize(arrays.groups);
    arrays.biases.resize(arrays.groups);
    const float unit =
        1.0F / (std::sqrt(static_cast<float>(key.in)) * static_cast<float>(1 << (key.bits - 1)));
    const float middle = static_cast<float>((1 << key.bits) - 1) / 2;
    const std::uint64_t stream =
        static_cast<std::uint64_t>(key.in) << 32 | static_cast<std::uint64_t>(key.bits);
    pool.parallel_for(
        static_cast<std::int64_t>(arrays.groups), [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t i = begin; i < end; ++i) {
            const float u = uniform(synthetic_bits(seed_ + 2 + stream, static_cast<std::uint64_t>(i)));
            const auto at = static_cast<std::size_t>(i);
            arrays.scales[at] = f32_to_bf16(unit * (0.75F + 0.5F * u));
            arrays.biases[at] = f32_to_bf16(-middle * bf16_to_f32(arrays.scales[at]));
          }
        });
  }

  const ModelConfig& config_;
  std::uint64_t seed_;
  std::size_t next_window_ = 0;
  std::uint64_t next_vector_ = 0;
  std::size_t largest_ = 0;
  std::uint64_t bytes_ = 0;
  std::map<ScaleKey, ScaleArrays> scales_;
  std::shared_ptr<Arena> arena_;
};

}  // namespace

std::uint64_t synthetic_bits(std::uint64_t seed, std::uint64_t index) {
  // SplitMix64 over a counter, whose start depends on the seed.
  return split_mix((seed * 0xD1342543DE82EF95ULL + index + 1) * kSplitMixIncrement);
}

SyntheticWeights make_synthetic_weights(const ModelConfig& config, std::uint64_t seed,
                                        const std::atomic<bool>* cancelled) {
  Maker maker(config, seed);
  maker.walk();
  maker.allocate(cancelled);
  return {.host = maker.walk(), .memory = maker.memory()};
}

}  // namespace mererun
