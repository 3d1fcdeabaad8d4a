#include "model/host_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "model/draft_head_loader.h"
#include "model/flash_host_weights.h"
#include "model/flash_loader.h"
#include "model/layer_binder.h"
#include "model/table_placement.h"
#include "model/tensor_binder.h"
#include "model/weight_tables.h"

namespace mererun {

namespace {

/// What a layer is, by its tensors; the config's word where they don't say.
LayerKind layer_kind(TensorBinder& binder, const std::string& prefix, LayerKind stated) {
  const bool delta = binder.has_prefix(prefix + "linear_attn.");
  const bool attention = binder.has_prefix(prefix + "self_attn.");
  if (delta == attention) {
    binder.problem(fmt::format("{}: expected either linear_attn.* or self_attn.* tensors, got {}",
                               prefix.substr(0, prefix.size() - 1), delta ? "both" : "neither"));
    return stated;
  }
  return delta ? LayerKind::kDeltaNet : LayerKind::kAttention;
}

class TrunkLoader {
 public:
  TrunkLoader(TensorBinder& binder, const LoadOptions& options, HostWeights& weights)
      : binder_(binder),
        layers_(binder, weights.config, options.experts, weights.report),
        options_(options),
        weights_(weights) {}

  void bind() {
    ModelConfig& config = weights_.config;
    weights_.embed = binder_.matrix("embed_tokens", config.vocabulary, config.hidden);
    if (config.flash) {
      weights_.final_mixer = std::make_shared<HostHyperConnection>();
      bind_stream_mixer(layers_, "hyper_connection_mixer.", *weights_.final_mixer);
      binder_.ignore("hyper_connection_mixer.block_inject_weight");
    } else {
      layers_.bind_norm("norm.weight", config.hidden, weights_.final_norm);
    }
    weights_.layers.resize(static_cast<std::size_t>(config.layers));
    for (int i = 0; i < config.layers; ++i) bind_layer(i);
    bind_output();
    if (config.flash) {
      weights_.report.trunk_norms =
          settle_measured_norms(layers_.norms(), options_.norm_convention, "the trunk's", weights_.report);
    } else {
      settle_norms();
    }
  }

 private:
  void bind_layer(int index) {
    const std::string prefix = fmt::format("layers.{}.", index);
    LayerKind& stated = weights_.config.kinds[static_cast<std::size_t>(index)];
    const LayerKind kind = layer_kind(binder_, prefix, stated);
    if (kind != stated) {
      weights_.report.warnings.push_back(
          fmt::format("layer {}: config.json says {}, its tensors are of {}; the tensors "
                      "decide",
                      index, name_of(stated), name_of(kind)));
      stated = kind;
    }
    HostLayer& layer = weights_.layers[static_cast<std::size_t>(index)];
    layers_.bind_layer(prefix, kind, layer);
    if (!weights_.config.flash) return;
    bind_flash_layer(layers_, prefix, kind, weights_.config.flash->has_ngrams_at(index), options_, layer);
  }

  /// The output matrix is its own if the file holds one, unless it repeats the embedding of a tied model.
  void bind_output() {
    ModelConfig& config = weights_.config;
    const bool present = binder_.has_prefix("lm_head.");
    if (present) weights_.lm_head = binder_.matrix("lm_head", config.vocabulary, config.hidden);
    if (present && !config.tied) return;
    if (present && !weights_.lm_head.empty() && !weights_.embed.empty() &&
        !same_data(weights_.lm_head, weights_.embed)) {
      binder_.problem(
          "lm_head.weight: expected the data of embed_tokens (config.json ties them), got other data");
    }
    if (!present && !config.tied) {
      weights_.report.notes.push_back("there is no lm_head; the output matrix is the embedding");
    }
    config.tied = true;
    weights_.lm_head = weights_.embed;
  }

  static bool same_data(const LinearSource& a, const LinearSource& b) {
    if (a.format != b.format || a.dtype != b.dtype || a.bits != b.bits || a.group != b.group) return false;
    const auto same = [&](const void* x, const void* y, std::int64_t row_bytes) {
      return std::memcmp(x, y, static_cast<std::size_t>(row_bytes * a.out)) == 0;
    };
    if (!same(a.weight, b.weight, a.weight_row_bytes())) return false;
    return a.format == WeightFormat::kDense ||
           (same(a.scales, b.scales, a.scale_row_bytes()) && same(a.biases, b.biases, b.scale_row_bytes()));
  }

  /// The axis order of the conv weights tells which converter wrote the norms; the data must agree.
  void settle_norms() {
    NormStatistics group;
    for (const StoredNorm& norm : layers_.norms()) group.add(*norm.weight);
    const NormConvention measured = measured_convention(group);
    NormConvention convention = measured;
    const bool any_conv = layers_.conv_taps_last() + layers_.conv_taps_middle() > 0;
    if (options_.norm_convention) {
      convention = *options_.norm_convention;
    } else if (any_conv) {
      convention = layers_.conv_taps_last() > 0 ? NormConvention::kZeroCentred : NormConvention::kFinal;
      if (layers_.conv_taps_last() > 0 && layers_.conv_taps_middle() > 0) {
        binder_.problem(fmt::format(
            "linear_attn.conv1d.weight: expected one axis order, got {} layers of [C, 1, K] and {} of "
            "[C, K, 1]",
            layers_.conv_taps_last(), layers_.conv_taps_middle()));
      } else if (convention != measured && !layers_.norms().empty()) {
        binder_.problem(fmt::format(
            "norm weights: expected {} ones (conv1d.weight ends in {}), got {:.1f}% negative entries "
            "with mean {:.3f}; \"norm_convention\" in mererun.json settles it",
            name_of(convention), layers_.conv_taps_last() > 0 ? "its taps" : "1",
            100 * group.negative_share(), group.mean()));
      }
    }
    for (const StoredNorm& norm : layers_.norms()) apply_convention(convention, *norm.weight);
    weights_.report.trunk_norms = convention;
  }

  TensorBinder& binder_;
  LayerBinder layers_;
  const LoadOptions& options_;
  HostWeights& weights_;
};

void note_head_absence(const HostWeights& weights, const LoadOptions& options, const Checkpoint& trunk,
                       LoadReport& report) {
  if (options.head == LoadOptions::Head::kSkip) {
    if (trunk.holds_draft_head())
      report.notes.push_back("the draft head (mtp.*) is there but was not asked for");
  } else if (!weights.head && weights.config.mtp_layers > 0) {
    report.notes.push_back(
        "config.json states a draft head (mtp_num_hidden_layers), but no place holds one; loaded without");
  } else if (weights.head && report.head_place != HeadPlace::kTargetShards && trunk.holds_draft_head()) {
    report.notes.push_back(
        fmt::format("the draft head is taken from {}; the mtp.* tensors beside the trunk are not used",
                    report.head_path.string()));
  }
}

/// What is wrong, by checkpoint: a head outside the trunk's files is one of its own.
struct LoadProblems {
  std::vector<std::string> trunk;
  std::filesystem::path head_path;  // file or folder
  std::vector<std::string> head;
};

HostWeights bind_all(const std::filesystem::path& folder, const LoadOptions& options,
                     LoadProblems& problems) {
  HostWeights weights;
  weights.config = load_config(folder);
  weights.report.warnings = weights.config.warnings;
  const auto trunk = std::make_shared<const Checkpoint>(Checkpoint::open(folder));
  weights.checkpoints.push_back(trunk);

  // Sought first: binding the trunk may already rebuild its experts in memory.
  FoundHead found;
  if (options.head != LoadOptions::Head::kSkip) found = find_draft_head(folder, trunk, options);
  if (options.head == LoadOptions::Head::kRequire && found.checkpoint == nullptr) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: expected a draft head (mtp.* tensors), got none", folder.string()),
                "--mtp-root names a folder that holds one");
  }

  TensorBinder binder(trunk, weights.config.quantization, TensorBinder::Precision::kDefaultAndEntries,
                      problems.trunk);
  TrunkLoader(binder, options, weights).bind();
  if (weights.config.flash) check_table_placement(folder, problems.trunk);
  problems.head_path = found.path;
  if (found.checkpoint != nullptr)
    bind_draft_head(found, binder, options, weights,
                    found.checkpoint == trunk ? problems.trunk : problems.head);
  // Left-over tensors of the head are the head's matter where it is used.
  constexpr std::array<std::string_view, 2> kHeadTensors{"mtp.", "draft_lm_head."};
  binder.list_left_over(kHeadTensors, "", weights.report);
  binder.finish(weights.report);
  weights.report.mapped_bytes -= weights.report.table_bytes;
  note_head_absence(weights, options, *trunk, weights.report);
  return weights;
}

void refuse(const std::filesystem::path& where, std::string_view expected,
            const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  constexpr std::size_t kListed = 20;
  std::string message = fmt::format("{}: expected {}, got {} problem{}: ", where.string(), expected,
                                    problems.size(), problems.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < problems.size() && i < kListed; ++i)
    message += (i == 0 ? "" : "; ") + problems[i];
  if (problems.size() > kListed) message += fmt::format("; and {} more", problems.size() - kListed);
  throw Error(ErrorCode::kCorruptData, message);
}

}  // namespace

std::string_view name_of(HeadPlace place) {
  switch (place) {
    case HeadPlace::kNone: return "none";
    case HeadPlace::kMtpRoot: return "mtp-root";
    case HeadPlace::kTargetShards: return "target-shards";
    case HeadPlace::kSidecarFile: return "sidecar-file";
    case HeadPlace::kSidecarFolder: return "mtp-folder";
    case HeadPlace::kCompanion: return "companion";
  }
  return "unknown";
}

HostWeights load_host_weights(const std::filesystem::path& folder, const LoadOptions& options) {
  LoadProblems problems;
  HostWeights weights = bind_all(folder, options, problems);
  refuse(folder, "a consistent checkpoint", problems.trunk);
  refuse(problems.head_path, "a complete draft head", problems.head);
  return weights;
}

std::vector<std::string> list_load_problems(const std::filesystem::path& folder, const LoadOptions& options) {
  LoadProblems problems;
  (void)bind_all(folder, options, problems);
  for (const std::string& problem : problems.head)
    problems.trunk.push_back(fmt::format("{}: {}", problems.head_path.string(), problem));
  return std::move(problems.trunk);
}

}  // namespace mererun
