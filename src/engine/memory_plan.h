#pragma once

#include <cstddef>
#include <vector>

#include "model/host_weights.h"

namespace mererun {

/// Memory that a model takes with one sequence of `context` positions, in bytes: the formulas of
/// docs/memory.md, computed from shapes alone.
struct MemoryNeed {
  int context = 0;
  std::size_t weights = 0;  // packed matrices, vectors, and what is read in place from the mapping
  std::size_t arena = 0;    // intermediate rows, the log of one verification, rotary table
  std::size_t state = 0;    // delta states, conv windows, last hidden row: the same at every position
  std::size_t kv = 0;       // pages of trunk and draft head that hold `context` positions
  std::size_t scratch = 0;  // on a GPU: kernels' scratch, staging of the upload, the driver's own
  std::size_t total() const { return weights + arena + state + kv + scratch; }
};

/// The parts of `MemoryNeed::weights`.
struct WeightMemory {
  std::size_t owned = 0;     // by the backend: ModelWeights::owned_bytes of the CPU backend
  std::size_t in_place = 0;  // read where the checkpoint's mapping has it: embedding, BF16 matrices
  std::size_t copied = 0;    // rebuilt expert stacks, rows of the compact draft matrix
  std::size_t total() const { return owned + in_place + copied; }
};
WeightMemory weight_memory(const HostWeights& weights);

/// What decides the arena: rows of a prefill chunk, and the widest verification.
struct MemoryLimits {
  int prefill_chunk = 1024;
  int logit_rows = 32;
  int verify_width = 8;
};

/// On the CPU. `weights` may be loaded with Experts::kDescribe: no data is read.
MemoryNeed memory_needed(const HostWeights& weights, int context, const MemoryLimits& limits);

/// The state and KV of one sequence of `positions` positions, on any backend.
std::size_t sequence_bytes(const HostWeights& weights, int positions);

/// On a GPU, where every weight is copied.
MemoryNeed gpu_memory_needed(const HostWeights& weights, int context, const MemoryLimits& limits);
/// The weights' part of it: what ModelWeights::owned_bytes of the CUDA backend says.
std::size_t gpu_weight_bytes(const HostWeights& weights);

/// The contexts that `model inspect` reports: 4,096, 32,768 and `standard`, ascending, each at most
/// `max_positions`; `standard` alone is kept whatever it is.
std::vector<int> reported_contexts(int standard, int max_positions);

}  // namespace mererun
