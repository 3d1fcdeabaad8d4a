#pragma once

#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "kernels/ops.h"
#include "model/host_weights.h"

namespace mererun {

/// A small f32 array on the device together with its view.
struct DeviceTensor {
  Buffer buffer;
  TensorView view;
};

/// Copies `values` ([rows, cols], row-major) to the device.
DeviceTensor upload_f32(Ops& ops, int rows, int cols, std::span<const float> values);

struct DeltaNetWeights {
  LinearHandle in_proj_qkv;  // [C, H]
  LinearHandle in_proj_z;    // [Nv * Dv, H]
  LinearHandle in_proj_a;    // [Nv, H]
  LinearHandle in_proj_b;    // [Nv, H]
  LinearHandle out_proj;     // [H, Nv * Dv]
  DeviceTensor conv;         // [K, C], oldest tap first
  DeviceTensor a_log;        // [1, Nv]
  DeviceTensor dt_bias;      // [1, Nv]
  DeviceTensor norm;         // [1, Dv]
};

struct AttentionWeights {
  LinearHandle q_proj;  // [Hq * 2 * Dh, H]
  LinearHandle k_proj;  // [Hkv * Dh, H]
  LinearHandle v_proj;  // [Hkv * Dh, H]
  LinearHandle o_proj;  // [H, Hq * Dh]
  DeviceTensor q_norm;  // [1, Dh]
  DeviceTensor k_norm;  // [1, Dh]
};

struct MlpWeights {
  LinearHandle gate;  // [F, H]
  LinearHandle up;    // [F, H]
  LinearHandle down;  // [H, F]
};

struct MoeWeights {
  LinearHandle router;       // [E, H]
  LinearHandle shared_gate;  // [1, H]
  LinearHandle expert_gate;  // E x [I, H]
  LinearHandle expert_up;    // E x [I, H]
  LinearHandle expert_down;  // E x [H, I]
  MlpWeights shared;
};

struct FlashHeadWeights;
struct FlashLayerWeights;
struct HyperConnectionWeights;

struct LayerWeights {
  DeviceTensor input_norm;  // [1, H]; none in Flash-Next
  DeviceTensor post_norm;   // [1, H]; none in Flash-Next
  std::variant<DeltaNetWeights, AttentionWeights> mixer;
  std::variant<MlpWeights, MoeWeights> feed_forward;
  std::shared_ptr<const FlashLayerWeights> flash;  // what only Flash-Next has (flash_weights.h), or null
};

/// Which output rows the drafter scores, and the token of each.
struct DraftOutput {
  LinearHandle head;                          // [rows, H]: the compact matrix, or the target's own
  LinearHandle shortlist;                     // [padded rows, H] 2-bit coarse scores; null without one
  std::optional<DraftVocabulary> vocabulary;  // no value: row = token id
  int rows = 0;                               // rows that may be proposed; later ones are padding
};

struct DraftHeadWeights {
  LinearHandle fc;                     // [H, 2H]; none in Flash-Next
  DeviceTensor pre_fc_norm_embedding;  // [1, H]
  DeviceTensor pre_fc_norm_hidden;     // [1, H]; Flash-Next: [1, 4H]
  LayerWeights layer;                  // attention
  DeviceTensor norm;                   // [1, H]; none in Flash-Next
  DraftOutput output;
  std::shared_ptr<const FlashHeadWeights> flash;  // or null
};

/// A model's weights in the form one backend computes with.
///
/// Thread-safety: immutable after construction; thread-safe.
struct ModelWeights {
  LinearHandle embed;       // [V, H]
  LinearHandle lm_head;     // [V, H]
  DeviceTensor final_norm;  // none in Flash-Next, which has:
  std::shared_ptr<const HyperConnectionWeights> final_mixer;
  std::vector<LayerWeights> layers;
  std::optional<DraftHeadWeights> head;
  std::size_t owned_bytes = 0;  // held by the backend beyond the mapping
};

/// How far loading has come, in bytes of the checkpoint.
struct LoadState {
  std::int64_t done_bytes = 0;
  std::int64_t total_bytes = 0;
};
using LoadProgress = std::function<void(const LoadState&)>;

/// Converts the host's weights layer by layer. `host` (its mapping) must outlive the result.
/// Errors: those of Ops::prepare_linear and TableReader, kOutOfMemory; kUnsupported for Flash-Next on a
/// backend that does not serve it.
ModelWeights prepare_weights(Ops& ops, const HostWeights& host, const LoadProgress& progress = {});

}  // namespace mererun
