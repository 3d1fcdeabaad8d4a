#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/host_weights.h"
#include "model/tensor_binder.h"
#include "model/weight_tables.h"

namespace mererun {

/// A norm weight that was bound as stored; its convention is settled once all of its group are known.
struct StoredNorm {
  std::string name;
  std::vector<float>* weight = nullptr;
};

/// Settles norms whose convention only the data tells: one for the group, unless a tensor clearly shows the
/// other, which is a warning. `stated` overrides the data. `whose` ("the head's") is for messages. Returns
/// the group's convention.
NormConvention settle_measured_norms(std::span<const StoredNorm> norms, std::optional<NormConvention> stated,
                                     std::string_view whose, LoadReport& report);

/// Binds the structs of weight_tables.h from one checkpoint under a name prefix. Internal to model/.
class LayerBinder {
 public:
  LayerBinder(TensorBinder& binder, const ModelConfig& config, LoadOptions::Experts experts,
              LoadReport& report)
      : binder_(binder), config_(config), experts_(experts), report_(report) {}

  /// Binds the layer named by `prefix` ("layers.3."), apart from what only Flash-Next has. `weights` must not
  /// move until the norms are settled.
  void bind_layer(const std::string& prefix, LayerKind kind, HostLayer& weights);

  template <typename T, typename Rows>
  void bind_matrices(const std::string& prefix, const Rows& rows, T& weights) {
    for (const MatrixRow<T>& row : rows)
      weights.*row.field = binder_.matrix(prefix + row.module, row.out, row.in);
  }
  template <typename T, typename Rows>
  void bind_vectors(const std::string& prefix, const Rows& rows, T& weights) {
    for (const VectorRow<T>& row : rows)
      weights.*row.field = bind_vector(prefix, row.tensor, row.kind, row.length, weights.*row.field);
  }
  void bind_norm(const std::string& name, int length, std::vector<float>& weight);

  TensorBinder& binder() { return binder_; }
  const ModelConfig& config() const { return config_; }
  LoadReport& report() { return report_; }

  /// Norms bound so far, as stored.
  const std::vector<StoredNorm>& norms() const { return norms_; }
  /// How many conv weights are [C, 1, K] (Hugging Face) and [C, K, 1] (MLX).
  int conv_taps_last() const { return conv_taps_last_; }
  int conv_taps_middle() const { return conv_taps_middle_; }

 private:
  std::vector<float> bind_vector(const std::string& prefix, const char* tensor, VectorKind kind, int length,
                                 std::vector<float>& field);
  std::vector<float> bind_conv(const std::string& name);

  TensorBinder& binder_;
  const ModelConfig& config_;
  LoadOptions::Experts experts_;
  LoadReport& report_;
  std::vector<StoredNorm> norms_;
  int conv_taps_last_ = 0;
  int conv_taps_middle_ = 0;
};

}  // namespace mererun
