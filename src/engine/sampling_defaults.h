#pragma once

#include "decode/sampling_options.h"
#include "model/config.h"

namespace mererun {

/// Sampling of a request that says nothing: the model's generation_config.json, else 0.7 / 0.9 / off / off
/// for temperature, top-p, top-k and min-p; greedy where the file says do_sample = false.
SamplingOptions sampling_defaults(const ModelConfig& config);

/// A seed for a request that names none, from the system's randomness.
std::uint64_t random_seed();

}  // namespace mererun
