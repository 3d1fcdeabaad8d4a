#include "tests/support/tiny_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "tests/support/affine_quantise.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_weights.h"

namespace mererun::testing {

namespace {

using Json = nlohmann::ordered_json;

class Writer {
 public:
  explicit Writer(const TinySpec& spec) : spec_(spec) {}

  TinyFiles write() {
    std::vector<TinyTensor> tensors = tiny_weights(spec_);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const TinyTensor& tensor = tensors[i];
      switch (tensor.role) {
        case TinyTensor::Role::kMatrix:
          put_matrix(tensor.name, tensor.shape, tensor.values, tensor.name);
          break;
        case TinyTensor::Role::kNorm: put_norm(tensor); break;
        case TinyTensor::Role::kPlain: put_plain(tensor); break;
        case TinyTensor::Role::kConv: put_conv(tensor); break;
        case TinyTensor::Role::kExperts:  // gate, up and down follow each other
          put_experts(tensor, tensors[i + 1], tensors[i + 2]);
          i += 2;
          break;
      }
    }
    files_.texts["config.json"] = config().dump(2);
    files_.texts["generation_config.json"] = Json{{"eos_token_id", {spec_.vocabulary - 1}}}.dump(2);
    return std::move(files_);
  }

 private:
  static bool is_head(std::string_view name) { return name.starts_with("mtp."); }

  /// The path of a module or tensor as the file spells it.
  std::string stored(std::string_view name) const {
    const bool top = name.starts_with("lm_head");
    if (is_head(name)) {
      if (spec_.head == TinyHead::kShards) return fmt::format("{}{}", mlx() ? "language_model." : "", name);
      return std::string(spec_.bare_head_names ? name.substr(std::string_view("mtp.").size()) : name);
    }
    if (spec_.naming == TinyNaming::kMlx)
      return fmt::format("language_model.{}{}", top ? "" : "model.", name);
    if (top) return std::string(name);
    return fmt::format("model.{}{}", spec_.naming == TinyNaming::kHf ? "language_model." : "", name);
  }
  bool mlx() const { return spec_.naming == TinyNaming::kMlx; }

  void put(std::string_view canonical, StoredTensor tensor) {
    std::string file = "model.safetensors";
    if (is_head(canonical) && spec_.head == TinyHead::kSidecarFile) file = "mtp.safetensors";
    if (is_head(canonical) && spec_.head == TinyHead::kSidecarFolder) file = "mtp/model.safetensors";
    files_.weights[file].push_back(std::move(tensor));
  }

  TinyPrecision precision(std::string_view module) const {
    const auto own = spec_.modules.find(std::string(module));
    if (own != spec_.modules.end()) return own->second;
    const bool gate = spec_.moe && (module.ends_with("mlp.gate") || module.ends_with("shared_expert_gate"));
    if (gate && spec_.gate_precision) return *spec_.gate_precision;
    return is_head(module) ? spec_.head_precision.value_or(spec_.precision) : spec_.precision;
  }

  /// `module`: canonical, decides precision and name. A BF16 stack of a fused layout has no ".weight".
  void put_matrix(const std::string& module, const std::vector<std::int64_t>& shape,
                  const std::vector<float>& values, const std::string& precision_of, bool bare = false) {
    const TinyPrecision precise = precision(precision_of);
    if (precise.bits == 0) {
      put(module, bf16_tensor(stored(module) + (bare ? "" : ".weight"), shape, values));
      return;
    }
    const std::vector<std::int64_t> leading(shape.begin(), shape.end() - 1);
    for (StoredTensor& part : quantise_affine(stored(module), leading, static_cast<int>(shape.back()), values,
                                              precise.bits, precise.group)) {
      put(module, std::move(part));
    }
    note_precision(module, precise);
  }

  void note_precision(const std::string& module, TinyPrecision precise) {
    if (is_head(module) && spec_.head != TinyHead::kShards) return;
    if (precise.bits == spec_.precision.bits && precise.group == spec_.precision.group) return;
    entries_[stored(module)] = Json{{"group_size", precise.group}, {"bits", precise.bits}};
  }

  void put_norm(const TinyTensor& tensor) {
    const NormConvention convention = is_head(tensor.name) ? spec_.head_norms : spec_.norms;
    std::vector<float> values = tensor.values;
    if (convention == NormConvention::kFinal) {
      for (float& value : values) value += 1.0f;
    }
    put(tensor.name, bf16_tensor(stored(tensor.name), tensor.shape, values));
  }

  void put_plain(const TinyTensor& tensor) {
    const bool wide = tensor.name.ends_with("A_log");
    put(tensor.name, wide ? f32_tensor(stored(tensor.name), tensor.shape, tensor.values)
                          : bf16_tensor(stored(tensor.name), tensor.shape, tensor.values));
  }

  void put_conv(const TinyTensor& tensor) {
    const std::int64_t channels = tensor.shape[0];
    const std::int64_t taps = tensor.shape[1];
    const std::vector<std::int64_t> shape = spec_.conv_taps_last
                                                ? std::vector<std::int64_t>{channels, 1, taps}
                                                : std::vector<std::int64_t>{channels, taps, 1};
    put(tensor.name, bf16_tensor(stored(tensor.name), shape, tensor.values));
  }

  void put_experts(const TinyTensor& gate, const TinyTensor& up, const TinyTensor& down) {
    const TinyExperts layout = is_head(gate.name) ? spec_.head_expert_layout : spec_.expert_layout;
    if (layout == TinyExperts::kStacked) {
      for (const TinyTensor* part : {&gate, &up, &down})
        put_matrix(part->name, part->shape, part->values, part->name);
      return;
    }
    const std::string base = gate.name.substr(0, gate.name.find("switch_mlp."));
    if (layout == TinyExperts::kPerExpert) {
      for (const TinyTensor* part : {&gate, &up, &down}) put_each(base, *part);
      return;
    }
    TinyTensor both = fuse(gate, up);
    TinyTensor last = down;
    if (layout == TinyExperts::kTransposed) {
      both = transpose(both);
      last = transpose(last);
    }
    put_matrix(base + "experts.gate_up_proj", both.shape, both.values, gate.name, true);
    put_matrix(base + "experts.down_proj", last.shape, last.values, down.name, true);
  }

  void put_each(const std::string& base, const TinyTensor& stack) {
    const std::string projection = stack.name.substr(stack.name.rfind('.') + 1);
    const std::size_t count = static_cast<std::size_t>(stack.shape[1] * stack.shape[2]);
    for (std::int64_t e = 0; e < stack.shape[0]; ++e) {
      const auto first =
          stack.values.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(e) * count);
      put_matrix(fmt::format("{}experts.{}.{}", base, e, projection), {stack.shape[1], stack.shape[2]},
                 std::vector<float>(first, first + static_cast<std::ptrdiff_t>(count)), stack.name);
    }
  }

  /// [E, I, H] and [E, I, H] -> [E, 2I, H].
  static TinyTensor fuse(const TinyTensor& gate, const TinyTensor& up) {
    TinyTensor both = gate;
    both.shape[1] *= 2;
    both.values.clear();
    const std::ptrdiff_t count = gate.shape[1] * gate.shape[2];
    for (std::ptrdiff_t e = 0; e < gate.shape[0]; ++e) {
      for (const TinyTensor* part : {&gate, &up}) {
        both.values.insert(both.values.end(), part->values.begin() + e * count,
                           part->values.begin() + (e + 1) * count);
      }
    }
    return both;
  }

  static TinyTensor transpose(const TinyTensor& stack) {
    TinyTensor turned = stack;
    const std::size_t rows = static_cast<std::size_t>(stack.shape[1]);
    const std::size_t cols = static_cast<std::size_t>(stack.shape[2]);
    std::swap(turned.shape[1], turned.shape[2]);
    for (std::size_t e = 0; e < static_cast<std::size_t>(stack.shape[0]); ++e) {
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < cols; ++c) {
          turned.values[(e * cols + c) * rows + r] = stack.values[(e * rows + r) * cols + c];
        }
      }
    }
    return turned;
  }

  Json config() const {
    const std::string family = spec_.moe ? "qwen3_5_moe" : "qwen3_5";
    Json text{{"model_type", family + "_text"},
              {"vocab_size", spec_.vocabulary},
              {"hidden_size", spec_.hidden},
              {"num_hidden_layers", spec_.layers},
              {"num_attention_heads", spec_.heads},
              {"num_key_value_heads", spec_.kv_heads},
              {"head_dim", spec_.head_dim},
              {"linear_num_key_heads", spec_.linear_key_heads},
              {"linear_num_value_heads", spec_.linear_value_heads},
              {"linear_key_head_dim", spec_.linear_key_dim},
              {"linear_value_head_dim", spec_.linear_value_dim},
              {"linear_conv_kernel_dim", spec_.conv_kernel},
              {"max_position_embeddings", spec_.max_positions},
              {"rms_norm_eps", 1e-6},
              {"hidden_act", "silu"},
              {"full_attention_interval", 4},
              {"eos_token_id", spec_.vocabulary - 1},
              {"mtp_num_hidden_layers", 1}};
    text["rope_parameters"] = {
        {"rope_type", "default"}, {"rope_theta", 10000000}, {"partial_rotary_factor", 0.25}};
    if (spec_.moe) {
      text["num_experts"] = spec_.experts;
      text["num_experts_per_tok"] = spec_.experts_per_token;
      text["moe_intermediate_size"] = spec_.moe_intermediate;
      text["shared_expert_intermediate_size"] = spec_.shared_intermediate;
      text["norm_topk_prob"] = true;
    } else {
      text["intermediate_size"] = spec_.intermediate;
    }
    Json config{{"model_type", family}, {"tie_word_embeddings", spec_.tied}, {"text_config", text}};
    if (spec_.precision.bits != 0) {
      Json quantization{
          {"group_size", spec_.precision.group}, {"bits", spec_.precision.bits}, {"mode", "affine"}};
      for (const auto& [module, entry] : entries_) quantization[module] = entry;
      for (const auto& [module, precise] : spec_.modules) {
        if (precise.bits == 0) quantization[stored(module)] = false;
      }
      config["quantization"] = quantization;
      config["quantization_config"] = quantization;
    }
    return config;
  }

  const TinySpec& spec_;
  TinyFiles files_;
  std::map<std::string, Json> entries_;  // modules that differ from the default, as stored
};

}  // namespace

TinySpec tiny_dense() { return {}; }

TinySpec tiny_moe() {
  TinySpec spec;
  spec.moe = true;
  spec.heads = 8;
  spec.gate_precision = TinyPrecision{8, 64};
  return spec;
}

TinySpec in_bf16(TinySpec spec) {
  spec.precision.bits = 0;
  spec.gate_precision.reset();
  spec.head_precision.reset();
  return spec;
}

TinySpec hugging_face(TinySpec spec) {
  spec = in_bf16(std::move(spec));
  spec.naming = TinyNaming::kHf;
  spec.conv_taps_last = true;
  spec.norms = NormConvention::kZeroCentred;
  spec.head_norms = NormConvention::kZeroCentred;
  spec.expert_layout = TinyExperts::kFused;
  spec.head_expert_layout = TinyExperts::kFused;
  if (spec.head != TinyHead::kNone) spec.head = TinyHead::kShards;
  return spec;
}

StoredTensor& TinyFiles::tensor(std::string_view name) {
  for (auto& [file, tensors] : weights) {
    for (StoredTensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
  }
  throw std::out_of_range("no tensor " + std::string(name));
}

void TinyFiles::erase(std::string_view name) {
  (void)tensor(name);
  for (auto& [file, tensors] : weights)
    std::erase_if(tensors, [&](const StoredTensor& t) { return t.name == name; });
}

void TinyFiles::rename(std::string_view name, std::string to) { tensor(name).name = std::move(to); }

void TinyFiles::write(const std::filesystem::path& folder) const {
  for (const auto& [file, tensors] : weights) write_safetensors(folder / file, tensors);
  for (const auto& [file, text] : texts) write_file(folder / file, text);
}

TinyFiles make_tiny_checkpoint(const TinySpec& spec) { return Writer(spec).write(); }

std::filesystem::path write_tiny_checkpoint(const std::filesystem::path& folder, const TinySpec& spec) {
  make_tiny_checkpoint(spec).write(folder);
  return folder;
}

}  // namespace mererun::testing
