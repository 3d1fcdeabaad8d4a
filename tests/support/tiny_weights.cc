#include "tests/support/tiny_weights.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace mererun::testing {

namespace {

/// Source: splitmix64 (Vigna 2015).
std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Draws numbered from 0 for one tensor.
class Draws {
 public:
  Draws(std::uint64_t seed, const std::string& name) : state_(mix(seed)) {
    for (const char c : name) state_ = mix(state_ ^ static_cast<unsigned char>(c));
  }
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(mix(state_ + next_++) >> 11) * 0x1p-53; }
  /// Bell-shaped, mean 0 and variance 1: a sum of four uniforms, whose variance is a third.
  double normal() {
    double sum = -2;
    for (int i = 0; i < 4; ++i) sum += uniform();
    return std::sqrt(3.0) * sum;
  }

 private:
  std::uint64_t state_;
  std::uint64_t next_ = 0;
};

float to_bf16(double value) { return bf16_to_f32(f32_to_bf16(static_cast<float>(value))); }

class Maker {
 public:
  explicit Maker(const TinySpec& spec) : spec_(spec) {}

  std::vector<TinyTensor> make() {
    const int h = spec_.hidden;
    matrix("embed_tokens", spec_.vocabulary, h, std::sqrt(static_cast<double>(h)));
    for (int i = 0; i < spec_.layers; ++i) layer(fmt::format("layers.{}.", i), (i + 1) % 4 == 0);
    norm("norm", h);
    if (!spec_.tied) matrix("lm_head", spec_.vocabulary, h, 2.5);
    if (spec_.head == TinyHead::kNone) return std::move(tensors_);
    matrix("mtp.fc", h, 2 * h, 1.2);
    norm("mtp.pre_fc_norm_embedding", h);
    norm("mtp.pre_fc_norm_hidden", h);
    norm("mtp.norm", h);
    layer("mtp.layers.0.", true);
    return std::move(tensors_);
  }

 private:
  TinyTensor& add(std::string name, TinyTensor::Role role, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t axis : shape) count *= axis;
    tensors_.push_back(
        {std::move(name), role, std::move(shape), std::vector<float>(static_cast<std::size_t>(count))});
    return tensors_.back();
  }

  /// Normal with deviation gain / sqrt(in).
  void matrix(const std::string& name, int out, int in, double gain = 1.2) {
    fill(add(name, TinyTensor::Role::kMatrix, {out, in}), gain / std::sqrt(static_cast<double>(in)));
  }
  void stack(const std::string& name, int out, int in) {
    fill(add(name, TinyTensor::Role::kExperts, {spec_.experts, out, in}),
         1.4 / std::sqrt(static_cast<double>(in)));
  }
  void fill(TinyTensor& tensor, double deviation) {
    Draws draws(spec_.seed, tensor.name);
    for (float& value : tensor.values) value = to_bf16(deviation * draws.normal());
  }

  /// Multiples of 1/64 around `offset`: the weight and the weight plus one are both exact in BF16.
  void norm(const std::string& name, int length, double offset = 0) {
    TinyTensor& tensor = add(name + ".weight", TinyTensor::Role::kNorm, {length});
    Draws draws(spec_.seed, tensor.name);
    for (float& value : tensor.values) {
      value = static_cast<float>(std::nearbyint(64 * (offset + 0.2 * draws.normal())) / 64);
    }
  }
  void plain(const std::string& name, int length, double low, double high) {
    TinyTensor& tensor = add(name, TinyTensor::Role::kPlain, {length});
    Draws draws(spec_.seed, name);
    for (float& value : tensor.values) value = to_bf16(low + (high - low) * draws.uniform());
  }

  void layer(const std::string& prefix, bool attention) {
    norm(prefix + "input_layernorm", spec_.hidden);
    norm(prefix + "post_attention_layernorm", spec_.hidden);
    if (attention) {
      attend(prefix + "self_attn.");
    } else {
      delta_net(prefix + "linear_attn.");
    }
    feed_forward(prefix + "mlp.");
  }

  void delta_net(const std::string& p) {
    const int values = spec_.linear_value_heads;
    const int key_dim = spec_.linear_key_heads * spec_.linear_key_dim;
    const int value_dim = values * spec_.linear_value_dim;
    const int channels = 2 * key_dim + value_dim;
    matrix(p + "in_proj_qkv", channels, spec_.hidden);
    matrix(p + "in_proj_z", value_dim, spec_.hidden);
    matrix(p + "in_proj_a", values, spec_.hidden);
    matrix(p + "in_proj_b", values, spec_.hidden);
    matrix(p + "out_proj", spec_.hidden, value_dim);
    fill(add(p + "conv1d.weight", TinyTensor::Role::kConv, {channels, spec_.conv_kernel}), 0.5);
    plain(p + "A_log", values, -1.6, 1.8);
    plain(p + "dt_bias", values, -5, 0);
    plain(p + "norm.weight", spec_.linear_value_dim, 0.6, 1.4);
  }

  void attend(const std::string& p) {
    matrix(p + "q_proj", 2 * spec_.heads * spec_.head_dim, spec_.hidden);
    matrix(p + "k_proj", spec_.kv_heads * spec_.head_dim, spec_.hidden);
    matrix(p + "v_proj", spec_.kv_heads * spec_.head_dim, spec_.hidden);
    matrix(p + "o_proj", spec_.hidden, spec_.heads * spec_.head_dim);
    norm(p + "q_norm", spec_.head_dim, 0.2);
    norm(p + "k_norm", spec_.head_dim, 0.2);
  }

  void feed_forward(const std::string& p) {
    if (!spec_.moe) {
      mlp(p, spec_.intermediate);
      return;
    }
    matrix(p + "gate", spec_.experts, spec_.hidden, 1.5);
    matrix(p + "shared_expert_gate", 1, spec_.hidden);
    stack(p + "switch_mlp.gate_proj", spec_.moe_intermediate, spec_.hidden);
    stack(p + "switch_mlp.up_proj", spec_.moe_intermediate, spec_.hidden);
    stack(p + "switch_mlp.down_proj", spec_.hidden, spec_.moe_intermediate);
    mlp(p + "shared_expert.", spec_.shared_intermediate);
  }

  void mlp(const std::string& p, int width) {
    matrix(p + "gate_proj", width, spec_.hidden);
    matrix(p + "up_proj", width, spec_.hidden);
    matrix(p + "down_proj", spec_.hidden, width);
  }

  const TinySpec& spec_;
  std::vector<TinyTensor> tensors_;
};

}  // namespace

std::vector<TinyTensor> tiny_weights(const TinySpec& spec) { return Maker(spec).make(); }

}  // namespace mererun::testing
