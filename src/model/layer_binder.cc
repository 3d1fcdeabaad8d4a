#include "model/layer_binder.h"

#include <fmt/format.h>

#include "model/expert_layout.h"

namespace mererun {

void LayerBinder::bind_norm(const std::string& name, int length, std::vector<float>& weight) {
  weight = binder_.vector(name, length);
  if (!weight.empty()) norms_.push_back({name, &weight});
}

NormConvention settle_measured_norms(std::span<const StoredNorm> norms, std::optional<NormConvention> stated,
                                     std::string_view whose, LoadReport& report) {
  std::vector<NormStatistics> each(norms.size());
  NormStatistics group;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    each[i].add(*norms[i].weight);
    group.add(each[i]);
  }
  const NormConvention convention = stated.value_or(measured_convention(group));
  const NormConvention other =
      convention == NormConvention::kFinal ? NormConvention::kZeroCentred : NormConvention::kFinal;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const bool own = !stated && contradicts(each[i], convention);
    apply_convention(own ? other : convention, *norms[i].weight);
    if (!own) continue;
    report.warnings.push_back(fmt::format(
        "{}: {} norms are {}, but this one is {} by its data (mean {:.3f}, {:.1f}% negative); taken "
        "as {}",
        norms[i].name, whose, name_of(convention), name_of(other), each[i].mean(),
        100 * each[i].negative_share(), name_of(other)));
  }
  return convention;
}

std::vector<float> LayerBinder::bind_conv(const std::string& name) {
  const std::int64_t channels = config_.conv_dim();
  const std::int64_t taps = config_.conv_kernel;
  const std::vector<std::vector<std::int64_t>> shapes{{channels, 1, taps}, {channels, taps, 1}};
  std::vector<float> conv = binder_.vector(name, config_.conv_dim() * config_.conv_kernel, shapes);
  if (conv.empty()) return conv;
  if (binder_.find(name)->shape.back() == taps) {
    ++conv_taps_last_;
  } else {
    ++conv_taps_middle_;
  }
  return conv;
}

std::vector<float> LayerBinder::bind_vector(const std::string& prefix, const char* tensor, VectorKind kind,
                                            int length, std::vector<float>& field) {
  const std::string name = prefix + tensor;
  if (kind == VectorKind::kConv) return bind_conv(name);
  std::vector<float> values = binder_.vector(name, length);
  if (kind == VectorKind::kNorm && !values.empty()) norms_.push_back({name, &field});
  return values;
}

void LayerBinder::bind_layer(const std::string& prefix, LayerKind kind, HostLayer& weights) {
  if (!config_.flash) bind_vectors(prefix, layer_vectors(config_), weights);
  if (kind == LayerKind::kDeltaNet) {
    HostDeltaNet& mixer = weights.mixer.emplace<HostDeltaNet>();
    bind_matrices(prefix, delta_net_matrices(config_), mixer);
    bind_vectors(prefix, delta_net_vectors(config_), mixer);
  } else {
    HostAttention& mixer = weights.mixer.emplace<HostAttention>();
    bind_matrices(prefix, attention_matrices(config_), mixer);
    bind_vectors(prefix, attention_vectors(config_), mixer);
  }
  if (!config_.is_moe()) {
    bind_matrices(prefix, mlp_matrices(config_), weights.feed_forward.emplace<HostMlp>());
    return;
  }
  HostMoe& moe = weights.feed_forward.emplace<HostMoe>();
  bind_matrices(prefix, moe_matrices(config_), moe);
  bind_experts(binder_, prefix, config_, experts_, weights, report_);
  bind_matrices(prefix, shared_expert_matrices(config_), moe.shared);
}

}  // namespace mererun
