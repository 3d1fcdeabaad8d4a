#pragma once

#include <array>
#include <vector>

#include "model/host_weights.h"

namespace mererun {

// One table per struct: the module's name in a checkpoint, the field, and the shape that the config implies.
// Binding, validation and every walk over the weights use these tables and no other list. Names are relative
// to a layer (`layers.<i>.`); all rows are required. Internal to model/.

template <typename T>
struct MatrixRow {
  const char* module;  // its weight is `<module>.weight`
  LinearSource T::*field;
  int out;
  int in;
};

/// How a vector's stored values become final.
enum class VectorKind {
  kPlain,  // as stored
  kNorm,   // offset by the norm convention
  kConv,   // [C, 1, K] or [C, K, 1]: the same memory order
};

template <typename T>
struct VectorRow {
  const char* tensor;
  std::vector<float> T::*field;
  VectorKind kind;
  int length;
};

/// Expert stacks: `projection` is the last part of the module's name in every layout.
struct StackRow {
  const char* projection;
  LinearSource HostMoe::*field;
  int out;
  int in;
};

inline std::array<MatrixRow<HostDeltaNet>, 5> delta_net_matrices(const ModelConfig& c) {
  return {{{"linear_attn.in_proj_qkv", &HostDeltaNet::in_proj_qkv, c.conv_dim(), c.hidden},
           {"linear_attn.in_proj_z", &HostDeltaNet::in_proj_z, c.value_dim(), c.hidden},
           {"linear_attn.in_proj_a", &HostDeltaNet::in_proj_a, c.linear_value_heads, c.hidden},
           {"linear_attn.in_proj_b", &HostDeltaNet::in_proj_b, c.linear_value_heads, c.hidden},
           {"linear_attn.out_proj", &HostDeltaNet::out_proj, c.hidden, c.value_dim()}}};
}

inline std::array<VectorRow<HostDeltaNet>, 4> delta_net_vectors(const ModelConfig& c) {
  // The gated output norm is never zero-centred.
  return {
      {{"linear_attn.conv1d.weight", &HostDeltaNet::conv, VectorKind::kConv, c.conv_dim() * c.conv_kernel},
       {"linear_attn.A_log", &HostDeltaNet::a_log, VectorKind::kPlain, c.linear_value_heads},
       {"linear_attn.dt_bias", &HostDeltaNet::dt_bias, VectorKind::kPlain, c.linear_value_heads},
       {"linear_attn.norm.weight", &HostDeltaNet::norm, VectorKind::kPlain, c.linear_value_dim}}};
}

inline std::array<MatrixRow<HostAttention>, 4> attention_matrices(const ModelConfig& c) {
  return {{{"self_attn.q_proj", &HostAttention::q_proj, 2 * c.attention_dim(), c.hidden},
           {"self_attn.k_proj", &HostAttention::k_proj, c.kv_dim(), c.hidden},
           {"self_attn.v_proj", &HostAttention::v_proj, c.kv_dim(), c.hidden},
           {"self_attn.o_proj", &HostAttention::o_proj, c.hidden, c.attention_dim()}}};
}

inline std::array<VectorRow<HostAttention>, 2> attention_vectors(const ModelConfig& c) {
  return {{{"self_attn.q_norm.weight", &HostAttention::q_norm, VectorKind::kNorm, c.head_dim},
           {"self_attn.k_norm.weight", &HostAttention::k_norm, VectorKind::kNorm, c.head_dim}}};
}

/// The dense feed-forward of width F under `mlp`.
inline std::array<MatrixRow<HostMlp>, 3> mlp_matrices(const ModelConfig& c) {
  return {{{"mlp.gate_proj", &HostMlp::gate, c.intermediate, c.hidden},
           {"mlp.up_proj", &HostMlp::up, c.intermediate, c.hidden},
           {"mlp.down_proj", &HostMlp::down, c.hidden, c.intermediate}}};
}

/// The shared expert of a MoE layer.
inline std::array<MatrixRow<HostMlp>, 3> shared_expert_matrices(const ModelConfig& c) {
  return {{{"mlp.shared_expert.gate_proj", &HostMlp::gate, c.shared_intermediate, c.hidden},
           {"mlp.shared_expert.up_proj", &HostMlp::up, c.shared_intermediate, c.hidden},
           {"mlp.shared_expert.down_proj", &HostMlp::down, c.hidden, c.shared_intermediate}}};
}

inline std::array<MatrixRow<HostMoe>, 2> moe_matrices(const ModelConfig& c) {
  return {{{"mlp.gate", &HostMoe::router, c.experts, c.hidden},
           {"mlp.shared_expert_gate", &HostMoe::shared_gate, 1, c.hidden}}};
}

inline std::array<StackRow, 3> expert_stacks(const ModelConfig& c) {
  return {{{"gate_proj", &HostMoe::expert_gate, c.moe_intermediate, c.hidden},
           {"up_proj", &HostMoe::expert_up, c.moe_intermediate, c.hidden},
           {"down_proj", &HostMoe::expert_down, c.hidden, c.moe_intermediate}}};
}

inline std::array<VectorRow<HostLayer>, 2> layer_vectors(const ModelConfig& c) {
  return {{{"input_layernorm.weight", &HostLayer::input_norm, VectorKind::kNorm, c.hidden},
           {"post_attention_layernorm.weight", &HostLayer::post_norm, VectorKind::kNorm, c.hidden}}};
}

inline std::array<MatrixRow<HostDraftHead>, 1> draft_head_matrices(const ModelConfig& c) {
  return {{{"fc", &HostDraftHead::fc, c.hidden, 2 * c.hidden}}};
}

inline std::array<VectorRow<HostDraftHead>, 3> draft_head_vectors(const ModelConfig& c) {
  return {
      {{"pre_fc_norm_embedding.weight", &HostDraftHead::pre_fc_norm_embedding, VectorKind::kNorm, c.hidden},
       {"pre_fc_norm_hidden.weight", &HostDraftHead::pre_fc_norm_hidden, VectorKind::kNorm, c.hidden},
       {"norm.weight", &HostDraftHead::norm, VectorKind::kNorm, c.hidden}}};
}

}  // namespace mererun
