#include "engine/sampling_defaults.h"

#include <random>

namespace mererun {

SamplingOptions sampling_defaults(const ModelConfig& config) {
  const GenerationDefaults& defaults = config.generation;
  SamplingOptions out;
  // A file that says do_sample = false asks for greedy decoding.
  out.temperature = defaults.do_sample.value_or(true) ? defaults.temperature.value_or(0.7) : 0.0;
  out.top_p = defaults.top_p.value_or(0.9);
  out.top_k = defaults.top_k.value_or(0);
  out.min_p = defaults.min_p.value_or(0.0);
  return out;
}

std::uint64_t random_seed() { return std::uint64_t{std::random_device{}()} << 32 | std::random_device{}(); }

}  // namespace mererun
