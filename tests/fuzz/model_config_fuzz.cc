// Any bytes as config.json, generation_config.json and mererun.json of a model: values in range, or an Error.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "model/config.h"
#include "model/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const mererun::ModelConfig config = mererun::parse_config(text, "", "fuzz");
    // What the rest of the program relies on without asking again.
    const bool sound = config.hidden > 0 && config.vocabulary > 0 &&
                       config.kinds.size() == static_cast<std::size_t>(config.layers) &&
                       config.heads % config.kv_heads == 0 && config.conv_dim() > 0 &&
                       config.attention_dim() > 0 && config.rope.rotary_dims % 2 == 0 &&
                       config.rope.rotary_dims <= config.head_dim &&
                       config.experts_per_token <= config.experts;
    if (!sound) std::abort();
  } catch (const mererun::Error&) {
  }
  try {
    (void)mererun::parse_config(
        R"({"model_type": "qwen3_5", "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 1,
        "max_position_embeddings": 64, "num_attention_heads": 1, "num_key_value_heads": 1, "linear_num_key_heads": 1,
        "linear_num_value_heads": 1, "intermediate_size": 64, "rope_theta": 1e7})",
        text, "fuzz");
  } catch (const mererun::Error&) {
  }
  try {
    (void)mererun::parse_manifest(text, "fuzz");
  } catch (const mererun::Error&) {
  }
  return 0;
}
