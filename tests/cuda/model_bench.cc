#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "kernels/ops.h"
#include "model/model.h"
#include "tests/cuda/checks.h"
#include "tests/cuda/random_weights.h"

namespace mererun::cuda_check {

namespace {

ModelConfig config_of(const std::string& size) {
  const bool moe = size == "35b";
  ModelConfig c;
  c.model_type = moe ? "qwen3_5_moe" : "qwen3_5";
  c.family = moe ? Family::kMoe : Family::kDense;
  c.hidden = moe ? 2048 : 5120;
  c.layers = moe ? 40 : 64;
  for (int i = 0; i < c.layers; ++i) {
    c.kinds.push_back(i % 4 == 3 ? LayerKind::kAttention : LayerKind::kDeltaNet);
  }
  c.vocabulary = 248320;
  c.max_positions = 262144;
  c.heads = moe ? 16 : 24;
  c.kv_heads = moe ? 2 : 4;
  c.head_dim = 256;
  c.rope.theta = 1e7;
  c.rope.rotary_dims = 64;
  c.linear_key_heads = 16;
  c.linear_value_heads = moe ? 32 : 48;
  c.linear_key_dim = 128;
  c.linear_value_dim = 128;
  c.conv_kernel = 4;
  c.intermediate = moe ? 0 : 17408;
  if (moe) {
    c.experts = 256;
    c.experts_per_token = 8;
    c.moe_intermediate = 512;
    c.shared_intermediate = 512;
  }
  return c;
}

std::vector<float> constant(int n, float value) {
  return std::vector<float>(static_cast<std::size_t>(n), value);
}

HostMlp mlp(const RandomWeights& random, int hidden, int width) {
  return {random.affine("gate", width, hidden), random.affine("up", width, hidden),
          random.affine("down", hidden, width)};
}

HostLayer layer(const RandomWeights& random, const ModelConfig& c, LayerKind kind) {
  HostLayer l;
  l.input_norm = constant(c.hidden, 1);
  l.post_norm = constant(c.hidden, 1);
  if (kind == LayerKind::kDeltaNet) {
    l.mixer = HostDeltaNet{random.affine("qkv", c.conv_dim(), c.hidden),
                           random.affine("z", c.value_dim(), c.hidden),
                           random.affine("a", c.linear_value_heads, c.hidden),
                           random.affine("b", c.linear_value_heads, c.hidden),
                           random.affine("out", c.hidden, c.value_dim()),
                           constant(c.conv_dim() * c.conv_kernel, 0.25f),
                           constant(c.linear_value_heads, 0.5f),
                           constant(c.linear_value_heads, -2.0f),
                           constant(c.linear_value_dim, 1)};
  } else {
    l.mixer = HostAttention{random.affine("q", 2 * c.attention_dim(), c.hidden),
                            random.affine("k", c.kv_dim(), c.hidden),
                            random.affine("v", c.kv_dim(), c.hidden),
                            random.affine("o", c.hidden, c.attention_dim()),
                            constant(c.head_dim, 1),
                            constant(c.head_dim, 1)};
  }
  if (!c.is_moe()) {
    l.feed_forward = mlp(random, c.hidden, c.intermediate);
  } else {
    l.feed_forward = HostMoe{random.affine("router", c.experts, c.hidden, 8),
                             random.affine("shared gate", 1, c.hidden, 8),
                             random.affine("gate", c.moe_intermediate, c.hidden, 4, c.experts),
                             random.affine("up", c.moe_intermediate, c.hidden, 4, c.experts),
                             random.affine("down", c.hidden, c.moe_intermediate, 4, c.experts),
                             mlp(random, c.hidden, c.shared_intermediate)};
  }
  return l;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class ModelBench {
 public:
  ModelBench(Report& report, const std::string& size, HostWeights host)
      : report_(report),
        size_(size),
        model_(make_cuda_ops({}), std::move(host), {.max_rows = 1024, .max_logit_rows = 32}) {
    std::mt19937 engine(5);
    for (int i = 0; i < 65536; ++i) ids_.push_back(static_cast<TokenId>(engine() % 248320u));
  }

  void run(int context, std::span<const int> widths) {
    SequenceState state = model_.new_sequence();
    const auto start = std::chrono::steady_clock::now();
    for (int at = 0; at < context; at += 1024) pass(state, at, std::min(1024, context - at), nullptr);
    model_.ops().synchronize();
    const double prefill = seconds_since(start);
    report_.add(
        {fmt::format(R"({{"bench":"prefill","model":"{}","tokens":{},"seconds":{:.4f},"tokensPerS":{:.0f}}})",
                     size_, context, prefill, context / prefill),
         true});
    for (const int width : widths) verify(state, width);
  }

 private:
  TensorView pass(SequenceState& state, int from, int count, VerifyTransaction* transaction) {
    const PassSegment segment{&state, transaction, 0, count};
    return model_.decoder().forward({ids_.data() + from, static_cast<std::size_t>(count)}, {&segment, 1});
  }

  /// Oracle-fed rounds of one width: forward, logits, argmax on the device, one download, commit of all rows.
  void verify(const SequenceState& base, int width) {
    SequenceState state = base.fork();
    VerifyLog log = model_.new_verify_log(width);
    const Buffer chosen = model_.ops().allocate(32 * sizeof(std::int32_t));
    std::vector<std::int32_t> host(static_cast<std::size_t>(width));
    const int rounds = width >= 16 ? 12 : 24;
    std::vector<double> times;
    for (int i = 0; i < rounds + 4; ++i) {
      const auto start = std::chrono::steady_clock::now();
      VerifyTransaction transaction(state, log, width);
      const TensorView hidden = pass(state, 2048 + i * width, width, &transaction);
      const TensorView logits = model_.decoder().logits(hidden);
      model_.ops().argmax_rows({.logits = logits, .ids = make_view(chosen.data(), DType::kI32, 1, width)});
      transaction.commit(width, hidden);
      const double queued = seconds_since(start);
      model_.ops().download(host.data(), chosen.data(), host.size() * sizeof(std::int32_t));
      if (i >= 4) {
        times.push_back(seconds_since(start));
        queue_seconds_ = queued;
      }
    }
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    report_.add({fmt::format(R"({{"bench":"verify","model":"{}","context":{},"width":{},"msPerRound":{:.3f},)"
                             R"("msQueued":{:.3f},"tokensPerS":{:.1f},"first":{}}})",
                             size_, base.length(), width, median * 1e3, queue_seconds_ * 1e3, width / median,
                             host[0]),
                 true});
  }

  Report& report_;
  std::string size_;
  Model model_;
  std::vector<TokenId> ids_;
  double queue_seconds_ = 0;
};

}  // namespace

void bench_model(Report& report, const std::string& size) {
  const auto start = std::chrono::steady_clock::now();
  HostWeights host;
  host.config = config_of(size);
  const ModelConfig& c = host.config;
  const std::size_t most =
      std::max(std::size_t{248320} * static_cast<std::size_t>(c.hidden), std::size_t{256} * 2048 * 512);
  const RandomWeights random(most / 2, most / 64);
  host.embed = random.affine("embed", c.vocabulary, c.hidden);
  host.lm_head = random.affine("head", c.vocabulary, c.hidden);
  host.final_norm = constant(c.hidden, 1);
  for (const LayerKind kind : c.kinds) host.layers.push_back(layer(random, c, kind));
  ModelBench bench(report, size, std::move(host));
  report.add(
      {fmt::format(R"({{"bench":"load","model":"{}","seconds":{:.1f}}})", size, seconds_since(start)), true});
  constexpr int kWidths[] = {1, 2, 4, 8, 9, 16, 32};
  bench.run(512, kWidths);
  constexpr int kShort[] = {1, 8};
  bench.run(8192, kShort);
}

}  // namespace mererun::cuda_check
