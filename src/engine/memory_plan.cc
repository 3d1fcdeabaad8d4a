#include "engine/memory_plan.h"

#include <algorithm>

#include "cache/recurrent_state.h"
#include "cache/verify_transaction.h"
#include "kernels/cpu/packed_weight.h"
#include "kernels/cuda/weight_layout.h"
#include "model/activations.h"
#include "model/layer.h"

namespace mererun {
namespace {

constexpr std::size_t kRopePositions = 1024;  // the rotary table grows by them

// What the CUDA context, the kernels' scratch and attention's partial results may take beside the upload's
// staging; the largest part, partial results at 256K positions and width 8, is below 0.7 GB.
constexpr std::size_t kGpuScratchBytes = std::size_t{1} << 30;

std::size_t round_up(std::size_t value, std::size_t step) { return (value + step - 1) / step * step; }

/// Arena, state and KV: the same arrays on every backend.
MemoryNeed beside_weights(const HostWeights& weights, int context, const MemoryLimits& limits) {
  const ModelConfig& c = weights.config;
  const StateGeometry geometry = state_geometry(c, weights.head.has_value());
  const auto positions = static_cast<std::size_t>(context);
  MemoryNeed need;
  need.context = context;
  need.arena =
      Activations::size_bytes(c, limits.prefill_chunk, limits.logit_rows) +
      VerifyLog::size_bytes(geometry, limits.verify_width) +
      round_up(positions, kRopePositions) * static_cast<std::size_t>(c.rope.rotary_dims) * sizeof(float);
  need.state =
      RecurrentState::size_bytes(geometry) + static_cast<std::size_t>(geometry.hidden) * sizeof(float);
  const std::size_t pages = round_up(positions, kKvPagePositions) / kKvPagePositions;
  const std::size_t head_page = geometry.draft_head ? head_kv_geometry(geometry).page_bytes() : 0;
  need.kv = pages * (trunk_kv_geometry(geometry).page_bytes() + head_page);
  return need;
}

}  // namespace

WeightMemory weight_memory(const HostWeights& weights) {
  WeightMemory memory;
  memory.copied = static_cast<std::size_t>(weights.report.copied_bytes);
  std::size_t experts_in_place = 0;
  for_each_linear(weights, [&](std::string_view name, const LinearSource& source) {
    if (name == "embed_tokens") {
      memory.in_place += static_cast<std::size_t>(source.bytes());
      // The output matrix of a tied model has the same data in the form of a linear.
      if (weights.config.tied) memory.owned += cpu::packed_bytes(source);
    } else {
      const std::size_t packed = cpu::packed_bytes(source);
      memory.owned += packed;
      if (packed > 0) return;
      memory.in_place += static_cast<std::size_t>(source.bytes());
      if (source.experts > 1) experts_in_place += static_cast<std::size_t>(source.bytes());
    }
  });
  // Rebuilt stacks of BF16 are read where they were rebuilt.
  memory.in_place -= std::min(experts_in_place, memory.copied);
  for_each_vector(weights, [&](std::string_view, const std::vector<float>& values) {
    memory.owned += values.size() * sizeof(float);
  });
  if (weights.head && weights.head->vocabulary) {
    LinearSource compact = weights.lm_head;
    compact.out = weights.head->vocabulary->padded_rows();
    memory.owned += cpu::packed_bytes(compact);
    memory.copied += static_cast<std::size_t>(compact.bytes());
  }
  return memory;
}

MemoryNeed memory_needed(const HostWeights& weights, int context, const MemoryLimits& limits) {
  MemoryNeed need = beside_weights(weights, context, limits);
  need.weights = weight_memory(weights).total();
  return need;
}

std::size_t sequence_bytes(const HostWeights& weights, int positions) {
  const MemoryNeed need = beside_weights(weights, positions, {});
  return need.state + need.kv;
}

std::size_t gpu_weight_bytes(const HostWeights& weights) {
  std::size_t bytes = 0;
  for_each_linear(weights, [&](std::string_view name, const LinearSource& source) {
    if (name != "embed_tokens") {
      bytes += cuda::linear_bytes(source);
      return;
    }
    bytes += cuda::embedding_bytes(source);
    if (weights.config.tied) bytes += cuda::linear_bytes(source);
  });
  for_each_vector(weights, [&](std::string_view, const std::vector<float>& values) {
    bytes += values.size() * sizeof(float);
  });
  if (weights.head && weights.head->vocabulary) {
    LinearSource compact = weights.lm_head;
    compact.out = weights.head->vocabulary->padded_rows();
    bytes += cuda::linear_bytes(compact);
  }
  return bytes;
}

MemoryNeed gpu_memory_needed(const HostWeights& weights, int context, const MemoryLimits& limits) {
  MemoryNeed need = beside_weights(weights, context, limits);
  need.weights = gpu_weight_bytes(weights);
  need.scratch = kGpuScratchBytes + cuda::kUploadBytes;
  return need;
}

std::vector<int> reported_contexts(int standard, int max_positions) {
  std::vector<int> contexts{standard};
  for (const int context : {4096, 32768}) {
    if (context <= max_positions) contexts.push_back(context);
  }
  std::sort(contexts.begin(), contexts.end());
  contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
  return contexts;
}

}  // namespace mererun
