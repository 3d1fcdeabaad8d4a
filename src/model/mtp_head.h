#pragma once

#include <span>
#include <vector>

#include "base/types.h"
#include "cache/kv_cache.h"
#include "model/activations.h"
#include "model/layer.h"
#include "model/residual_form.h"
#include "model/rope_table.h"
#include "model/weights.h"

namespace mererun {

/// The one-layer multi-token-prediction head: from (hidden of token t, token t + 1) it predicts token t + 2.
///
/// Source: DeepSeek-V3 technical report, section 2.2 (multi-token prediction); model-math "MTP head".
/// Thread-safety: one thread at a time.
class MtpHead {
 public:
  /// `weights.head` must hold a value; all arguments must outlive the head.
  MtpHead(Ops& ops, const ModelConfig& config, const ModelWeights& weights, const Activations& activations,
          RopeTable& rope, ResidualForm& form);

  /// Runs transitions (hidden[i], tokens[i]) in slots first_slot + i of `cache` at rotary positions
  /// first_slot + i + base, writing their keys and values past what is committed; the caller moves the
  /// cache's length. hidden: [n, H] f32 (Flash-Next: [n, 4H]), outside the arena's shared region. Returns the
  /// head's output, as wide, after its norm (Flash-Next: its streams; input of the next chained step), valid
  /// until the next pass. Errors: kInvalidArgument for ids outside the vocabulary or more rows than the arena
  /// holds.
  TensorView forward(TensorView hidden, std::span<const TokenId> tokens, int first_slot, int base,
                     KvCache& cache);
  /// The same keys and values, and the output of the last row alone. The head has one layer: of the rows
  /// before, nothing else is ever read, so their attention and feed-forward are left out.
  TensorView forward_last(TensorView hidden, std::span<const TokenId> tokens, int first_slot, int base,
                          KvCache& cache);
  /// The same keys and values alone.
  void append(TensorView hidden, std::span<const TokenId> tokens, int first_slot, int base, KvCache& cache);

  /// What the output matrices multiply, [n, H] f32, of output rows; valid until it is asked for again.
  TensorView output_input(TensorView output) { return form_.head_output_input(output); }
  /// Scores [rows, R] over the draft vocabulary (compact rows), padding included.
  TensorView draft_logits(TensorView output);
  /// Coarse scores [1, padded rows] of the 2-bit shortlist matrix for one row of output_input. Needs a
  /// shortlist.
  TensorView coarse_scores(TensorView input);
  /// Exact scores of single compact rows for the same row of output_input, with the bits of draft_logits.
  std::vector<float> exact_scores(TensorView input, std::span<const std::int32_t> rows);
  /// Best-scoring token of each row of draft_logits: largest value, lowest compact id on ties, padding
  /// excluded; -1 if a row holds a NaN.
  std::vector<TokenId> argmax_tokens(TensorView logits);

  void set_hooks(const DecoderHooks* hooks) { hooks_ = hooks; }
  const DraftOutput& output() const { return weights_.head->output; }

 private:
  PassContext join(TensorView hidden, std::span<const TokenId> tokens, int first_slot, int base,
                   KvCache& cache);
  void append_rows(const PassContext& pass, int first_slot, KvCache& cache);
  TensorView run_layer(const PassContext& pass, int first_slot, KvCache& cache);

  Ops& ops_;
  const ModelConfig& config_;
  const ModelWeights& weights_;
  const Activations& activations_;
  RopeTable& rope_;
  ResidualForm& form_;
  const DecoderHooks* hooks_ = nullptr;
  std::vector<std::int32_t> slots_;
};

}  // namespace mererun
