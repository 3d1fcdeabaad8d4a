#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/ngram_table.h"
#include "tensor/linear_source.h"

namespace mererun {

// What only Flash-Next checkpoints hold. D = 4 H columns of a residual row, R the low rank.

/// One hyper-connection: how a sublayer reads the streams and writes to them.
struct HostHyperConnection {
  std::vector<float> norm;  // [D]
  LinearSource down;        // [R, D]
  LinearSource up;          // [D, R]
  LinearSource inject;      // [4, D]; empty in a mixer, which only reads
};

/// The indexer of a sparse-attention layer.
struct HostIndexer {
  LinearSource qk;            // [(heads + 1) * index_dim, H]: query heads, then the key
  std::vector<float> q_norm;  // [index_dim]
  std::vector<float> k_norm;  // [index_dim]
};

/// The n-gram layer.
struct HostNgram {
  LinearSource key;               // [D, E]
  LinearSource value;             // [H, E]
  std::vector<float> norm_key;    // [D]
  std::vector<float> norm_query;  // [D]
  std::vector<float> norm_conv;   // [D]
  std::vector<float> conv;        // [D, K], oldest tap first
  HostNgramTable table;
};

/// Beside the mixer and the feed-forward of a layer.
struct HostFlashLayer {
  HostHyperConnection mixer_connection;
  HostHyperConnection feed_forward_connection;
  std::optional<HostIndexer> indexer;  // attention layers
  std::optional<HostNgram> ngram;
};

/// How `pre_fc_norm_hidden` of the draft head is meant, on which sources disagree: over the whole residual
/// row (the default) or stream by stream.
enum class HeadNormSpan : int { kFullWidth, kPerStream };

struct HostFlashHead {
  LinearSource fc_embedding;  // [H, H]
  LinearSource fc_hidden;     // [H, H], for each stream
  HostHyperConnection mixer;
  HeadNormSpan norm_span = HeadNormSpan::kFullWidth;
};

}  // namespace mererun
