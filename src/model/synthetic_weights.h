#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/host_weights.h"

namespace mererun {

/// A shape to make random weights for: that of a published model, or a small one.
struct SyntheticGeometry {
  std::string name;
  ModelConfig config;
  int width = 4;  // W of a drafting round
  int width_cap = 16;
  int certified_width = 9;
};

/// Names that make_synthetic_geometry knows: q38-27b, ornith-35b, flash-next, small-dense, small-moe,
/// small-flash.
std::vector<std::string> synthetic_geometry_names();

/// The geometry, its stack shortened to `layers` where given (every fourth layer stays an attention layer).
/// A Flash-Next geometry has a table of about `table_bytes` (0: 64 MiB; the published one takes 32 GB).
/// Errors: kInvalidArgument for an unknown name, layers that are not 4 to the model's own number, or table
/// bytes for a geometry without a table.
SyntheticGeometry make_synthetic_geometry(std::string_view name, std::optional<int> layers,
                                          std::uint64_t table_bytes = 0);

/// Random weights and what they borrow from.
struct SyntheticWeights {
  HostWeights host;
  std::shared_ptr<const void> memory;  // must outlive every copy of `host` and every model made of it
};

/// Weights of a config, made from a seed: affine 4-bit matrices with groups of 64 (routers and shared gates 8
/// bits, the routed experts of Flash-Next 3), norms of ones, decay parameters of the usual range, and a draft
/// head. Scales keep the activations near the size of their inputs: a code has mean 0, and a row of n of them
/// a norm near 1/2.
///
/// All matrices are windows of one random array, each at its own offset, so the host needs the size of the
/// largest matrix (0.7 GB for q38-27b) and not of the model: a backend that converts weights into memory of
/// its own then holds the whole model once, each layer in its own place, which is what a timing must read.
/// The reference backend reads the array itself; its timings mean nothing.
///
/// The bits depend on config and seed only. Fills in parallel. The table of Flash-Next is written to a
/// temporary file that goes with `memory`, or with the process. Errors: kOutOfMemory, kIo; kCancelled if
/// `cancelled` (may be null) is set while the table is written.
SyntheticWeights make_synthetic_weights(const ModelConfig& config, std::uint64_t seed,
                                        const std::atomic<bool>* cancelled = nullptr);

/// A well-mixed 64-bit number for (seed, index): the generator of everything synthetic.
std::uint64_t synthetic_bits(std::uint64_t seed, std::uint64_t index);

}  // namespace mererun
