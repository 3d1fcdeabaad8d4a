#pragma once

#include <span>

#include "base/types.h"
#include "cache/sequence_state.h"
#include "cache/verify_transaction.h"
#include "model/activations.h"
#include "model/layer.h"
#include "model/residual_form.h"
#include "model/rope_table.h"
#include "model/weights.h"

namespace mererun {

/// The trunk: embedding, layers, final norm. One definition for prefill, decode and verification, for every
/// family (their residuals differ: residual_form.h), for one sequence or rows of several.
///
/// Thread-safety: one thread at a time.
class Decoder {
 public:
  /// All arguments must outlive the decoder.
  Decoder(Ops& ops, const ModelConfig& config, const ModelWeights& weights, const Activations& activations,
          RopeTable& rope, ResidualForm& form);

  /// Ids that a later pass over `state` will probably have, behind `before` and what the state holds: what
  /// can be fetched by ids alone is fetched ahead. Changes no result. The ids are in the vocabulary.
  void expect(const SequenceState& state, std::span<const TokenId> before, std::span<const TokenId> ids) {
    form_.expect(state, before, ids);
  }

  /// Runs one pass over `ids`; segments cover the rows in order. Returns hidden [T, H] f32 (after the final
  /// norm; Flash-Next: the four streams [T, 4H]), valid until the next pass. Direct segments advance their
  /// state by their rows and keep the last hidden row.
  ///
  /// Errors: kInvalidArgument for an id outside the vocabulary or more rows than the arena holds; kInternal
  /// for a state whose last pass failed.
  TensorView forward(std::span<const TokenId> ids, std::span<const PassSegment> segments);

  /// logits [rows, V] f32 of hidden rows, valid until the next call; at most the arena's logit rows.
  TensorView logits(TensorView hidden);

  void set_hooks(const DecoderHooks* hooks) { hooks_ = hooks; }
  Ops& ops() const { return ops_; }
  const ModelConfig& config() const { return config_; }
  const Activations& activations() const { return activations_; }

 private:
  void begin(std::span<const TokenId> ids, std::span<const PassSegment> segments);
  void run_layers(const PassContext& pass, std::span<const PassSegment> segments);
  void run_mixer(const PassContext& pass, const LayerWeights& layer, int index,
                 std::span<const PassSegment> segments);
  void finish(std::span<const TokenId> ids, std::span<const PassSegment> segments, TensorView hidden);

  Ops& ops_;
  const ModelConfig& config_;
  const ModelWeights& weights_;
  const Activations& activations_;
  RopeTable& rope_;
  ResidualForm& form_;
  const DecoderHooks* hooks_ = nullptr;
  int attention_index_ = 0, delta_index_ = 0;  // layers of each kind that a pass has run
  // Reused from pass to pass: a step allocates nothing.
  std::vector<AttentionSegment> attention_segments_;
  std::vector<DeltaSegment> delta_segments_;
  std::vector<DeltaLog> logs_;
  std::vector<std::int32_t> positions_;
};

}  // namespace mererun
