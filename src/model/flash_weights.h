#pragma once

#include <memory>
#include <optional>

#include "model/flash_host_weights.h"
#include "model/weight_converter.h"
#include "model/weights.h"

namespace mererun {

// The device form of flash_host_weights.h. D = 4 H, R the low rank.

struct HyperConnectionWeights {
  DeviceTensor norm;    // [1, D]
  LinearHandle down;    // [R, D]
  LinearHandle up;      // [D, R]
  LinearHandle inject;  // [4, D]; null in a mixer
};

struct IndexerWeights {
  LinearHandle qk;      // [(heads + 1) * index_dim, H]
  DeviceTensor q_norm;  // [1, index_dim]
  DeviceTensor k_norm;  // [1, index_dim]
};

struct NgramWeights {
  LinearHandle key;         // [D, E]
  LinearHandle value;       // [H, E]
  DeviceTensor norm_key;    // [1, D]
  DeviceTensor norm_query;  // [1, D]
  DeviceTensor norm_conv;   // [1, D]
  DeviceTensor conv;        // [K, D], oldest tap first
  std::shared_ptr<NgramTable> table;
};

struct FlashLayerWeights {
  HyperConnectionWeights mixer_connection;
  HyperConnectionWeights feed_forward_connection;
  std::optional<IndexerWeights> indexer;
  std::optional<NgramWeights> ngram;
};

struct FlashHeadWeights {
  LinearHandle fc_embedding;  // [H, H]
  LinearHandle fc_hidden;     // [H, H]
  HyperConnectionWeights mixer;
  HeadNormSpan norm_span;
};

// Errors: those of Ops::prepare_linear; convert of a layer with a table: those of TableReader.
HyperConnectionWeights convert(WeightConverter& to, const HostHyperConnection& host);
FlashLayerWeights convert(WeightConverter& to, const HostFlashLayer& host, const ModelConfig& config);
FlashHeadWeights convert(WeightConverter& to, const HostFlashHead& host);

}  // namespace mererun
