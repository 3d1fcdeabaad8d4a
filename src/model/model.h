#pragma once

#include <filesystem>
#include <memory>

#include "cache/sequence_state.h"
#include "cache/verify_transaction.h"
#include "kernels/ops.h"
#include "model/activations.h"
#include "model/decoder.h"
#include "model/host_weights.h"
#include "model/mtp_head.h"
#include "model/rope_table.h"
#include "model/weights.h"

namespace mererun {

/// Sizes of the arenas of one model.
struct ModelLimits {
  int max_rows = 1024;      // rows of the widest pass: the prefill chunk
  int max_logit_rows = 32;  // rows whose logits are computed at once: the widest verification
};

/// A checkpoint loaded onto one backend: weights, arenas, the decoder and the draft head.
///
/// Thread-safety: one thread at a time. Must outlive every SequenceState and snapshot made with it.
class Model {
 public:
  /// Takes over the backend and the host weights.
  /// Errors: those of prepare_weights.
  Model(std::unique_ptr<Ops> ops, HostWeights host, const ModelLimits& limits,
        const LoadProgress& progress = {});
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Loads, validates and converts a checkpoint folder.
  /// Errors: those of load_host_weights and prepare_weights.
  static std::unique_ptr<Model> load(const std::filesystem::path& folder, const LoadOptions& options,
                                     std::unique_ptr<Ops> ops, const ModelLimits& limits,
                                     const LoadProgress& progress = {});

  Ops& ops() { return *ops_; }
  const ModelConfig& config() const { return host_.config; }
  const HostWeights& host() const { return host_; }
  const ModelWeights& weights() const { return weights_; }
  const ModelLimits& limits() const { return limits_; }
  const Activations& activations() const { return activations_; }
  const StateGeometry& geometry() const { return geometry_; }
  const StatePools& pools() const { return pools_; }
  RopeTable& rope() { return rope_; }

  Decoder& decoder() { return decoder_; }
  /// Null without a draft head.
  MtpHead* head() { return head_ ? &*head_ : nullptr; }

  SequenceState new_sequence() { return SequenceState(*ops_, geometry_, pools_); }
  VerifyLog new_verify_log(int max_width) { return VerifyLog(*ops_, geometry_, max_width); }

 private:
  std::unique_ptr<Ops> ops_;  // first: everything below holds memory of it
  HostWeights host_;
  ModelWeights weights_;
  ModelLimits limits_;
  Activations activations_;
  RopeTable rope_;
  StateGeometry geometry_;
  StatePools pools_;
  std::unique_ptr<ResidualForm> form_;
  Decoder decoder_;
  std::optional<MtpHead> head_;
};

}  // namespace mererun
