#pragma once

#include <array>

#include "model/flash_host_weights.h"
#include "model/weight_tables.h"

namespace mererun {

// The tables of weight_tables.h for the parts that only Flash-Next has. Names are relative to the part's
// prefix. Internal to model/.

/// `<layer>.attn_hyper_connection.`, `<layer>.mlp_hyper_connection.` and, without `inject`, the mixers.
inline std::array<MatrixRow<HostHyperConnection>, 2> hyper_connection_matrices(const ModelConfig& c) {
  const int rank = c.flash->stream_lowrank;
  return {{{"input_mix_weight_down", &HostHyperConnection::down, rank, c.residual_dim()},
           {"input_mix_weight_up", &HostHyperConnection::up, c.residual_dim(), rank}}};
}
inline std::array<MatrixRow<HostHyperConnection>, 1> inject_matrices(const ModelConfig& c) {
  return {{{"block_inject_weight", &HostHyperConnection::inject, c.flash->streams, c.residual_dim()}}};
}
inline std::array<VectorRow<HostHyperConnection>, 1> hyper_connection_vectors(const ModelConfig& c) {
  return {{{"hc_norm.weight", &HostHyperConnection::norm, VectorKind::kNorm, c.residual_dim()}}};
}

/// `<layer>.self_attn.indexer.`
inline std::array<MatrixRow<HostIndexer>, 1> indexer_matrices(const ModelConfig& c) {
  return {{{"index_qk_proj", &HostIndexer::qk, (c.flash->indexer_heads + 1) * c.flash->indexer_head_dim,
            c.hidden}}};
}
inline std::array<VectorRow<HostIndexer>, 2> indexer_vectors(const ModelConfig& c) {
  const int dim = c.flash->indexer_head_dim;
  return {{{"q_layernorm.weight", &HostIndexer::q_norm, VectorKind::kNorm, dim},
           {"k_layernorm.weight", &HostIndexer::k_norm, VectorKind::kNorm, dim}}};
}

/// `<layer>.ple.`; the convolution and the table are bound by hand.
inline std::array<MatrixRow<HostNgram>, 2> ngram_matrices(const ModelConfig& c) {
  const int width = c.flash->ngram_embed_dim;
  return {{{"key_proj", &HostNgram::key, c.residual_dim(), width},
           {"value_proj", &HostNgram::value, c.hidden, width}}};
}
inline std::array<VectorRow<HostNgram>, 3> ngram_vectors(const ModelConfig& c) {
  return {{{"norm_key.weight", &HostNgram::norm_key, VectorKind::kNorm, c.residual_dim()},
           {"norm_query.weight", &HostNgram::norm_query, VectorKind::kNorm, c.residual_dim()},
           {"norm_conv.weight", &HostNgram::norm_conv, VectorKind::kNorm, c.residual_dim()}}};
}

/// `mtp.`
inline std::array<MatrixRow<HostFlashHead>, 2> flash_head_matrices(const ModelConfig& c) {
  return {{{"fc_embedding", &HostFlashHead::fc_embedding, c.hidden, c.hidden},
           {"fc_hidden", &HostFlashHead::fc_hidden, c.hidden, c.hidden}}};
}
inline std::array<VectorRow<HostDraftHead>, 2> flash_head_vectors(const ModelConfig& c) {
  return {
      {{"pre_fc_norm_embedding.weight", &HostDraftHead::pre_fc_norm_embedding, VectorKind::kNorm, c.hidden},
       {"pre_fc_norm_hidden.weight", &HostDraftHead::pre_fc_norm_hidden, VectorKind::kNorm,
        c.residual_dim()}}};
}

}  // namespace mererun
