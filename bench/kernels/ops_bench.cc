// What each operation of a layer costs, for the 27B dense and the 35B expert geometry: microseconds of one
// call, and its share of a layer, so that nothing but the linears should weigh.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_isa.h"
#include "kernels/numerics.h"

namespace mererun::bench {
namespace {

struct Geometry {
  const char* name;
  int hidden, feed_forward, value_heads, heads, kv_heads;
  int experts = 0, expert_width = 0;
};
constexpr Geometry kGeometries[] = {{"27B", 5120, 17408, 48, 24, 4},
                                    {"35B-A3B", 2048, 512, 32, 16, 2, 256, 512}};
constexpr int kKeyHeads = 16, kDeltaDim = 128, kHeadDim = 256, kChosen = 8;

double now(bool cpu_clock) {
  timespec t{};
  ::clock_gettime(cpu_clock ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Buffers and weights that live as long as a layer is measured.
class Layer {
 public:
  Layer(Ops& ops, const Geometry& g, int rows, int context)
      : ops_(ops), g_(g), rows_(rows), context_(context) {}

  struct Step {
    std::string name;
    std::function<void()> run;
  };
  std::vector<Step> steps();

 private:
  TensorView floats(int rows, int cols) {
    const std::size_t n = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
    buffers_.push_back(ops_.allocate(n * sizeof(float)));
    auto* data = buffers_.back().as<float>();
    for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<float>(i * 7919 % 201) * 0.01f - 1.0f;
    return make_view(data, DType::kF32, rows, cols);
  }
  TensorView ints(int rows, int cols) {
    buffers_.push_back(ops_.allocate(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols) * 4));
    return make_view(buffers_.back().data(), DType::kI32, rows, cols);
  }
  const LinearWeight* weight(int out, int in, int bits = 4, int experts = 1) {
    const std::size_t rows = static_cast<std::size_t>(out) * static_cast<std::size_t>(experts);
    std::vector<std::uint32_t> codes(rows * static_cast<std::size_t>(in) / 32 *
                                     static_cast<std::size_t>(bits));
    std::uint32_t seed = 1;
    for (std::uint32_t& c : codes) c = seed = seed * 1664525u + 1013904223u;
    const std::vector<std::uint16_t> sides(rows * static_cast<std::size_t>(in / 64), f32_to_bf16(0.01f));
    LinearSource s{.name = "bench",
                   .format = WeightFormat::kAffine,
                   .experts = experts,
                   .out = out,
                   .in = in,
                   .expert_stride = 0,
                   .bits = bits,
                   .group = 64};
    s.weight = codes.data();
    s.scales = sides.data();
    s.biases = sides.data();
    weights_.push_back(ops_.prepare_linear(s));
    return weights_.back().get();
  }
  void linear(std::vector<Step>& steps, const std::string& name, TensorView x,
              std::vector<const LinearWeight*> weights) {
    std::vector<LinearParams::Target> targets;
    for (const LinearWeight* w : weights) targets.push_back({w, floats(rows_, w->out()), {}});
    steps.push_back({name, [this, x, targets] { ops_.linear({.x = x, .targets = targets}); }});
  }
  void add_delta(std::vector<Step>& steps, TensorView x);
  void add_attention(std::vector<Step>& steps, TensorView x);
  void add_feed_forward(std::vector<Step>& steps, TensorView x);

  Ops& ops_;
  const Geometry& g_;
  int rows_, context_;
  std::vector<Buffer> buffers_;
  std::vector<LinearHandle> weights_;
  std::vector<std::byte*> pages_;
};

void Layer::add_delta(std::vector<Step>& steps, TensorView x) {
  const DeltaShape shape{kKeyHeads, g_.value_heads, kDeltaDim, kDeltaDim, 4};
  linear(steps, "delta: projections", x,
         {weight(shape.conv_channels(), g_.hidden), weight(shape.value_width(), g_.hidden),
          weight(g_.value_heads, g_.hidden), weight(g_.value_heads, g_.hidden)});
  DeltaPrepareParams p;
  p.shape = shape;
  p.inputs = floats(rows_, shape.conv_channels());
  p.window = floats(3, shape.conv_channels());
  p.conv_weight = floats(4, shape.conv_channels());
  p.a = floats(rows_, g_.value_heads);
  p.b = floats(rows_, g_.value_heads);
  p.a_log = floats(1, g_.value_heads);
  p.dt_bias = floats(1, g_.value_heads);
  p.q = floats(rows_, shape.key_width());
  p.k = floats(rows_, shape.key_width());
  p.v = floats(rows_, shape.value_width());
  p.alpha = floats(rows_, g_.value_heads);
  p.beta = floats(rows_, g_.value_heads);
  steps.push_back({"delta: convolution, norms, gates", [this, p] { ops_.delta_prepare(p); }});
  DeltaStepParams s;
  s.shape = shape;
  s.q = p.q;
  s.k = p.k;
  s.v = p.v;
  s.alpha = p.alpha;
  s.beta = p.beta;
  s.state = floats(g_.value_heads * kDeltaDim, kDeltaDim);
  s.out = floats(rows_, shape.value_width());
  steps.push_back({"delta: step", [this, s] { ops_.delta_step(s); }});
  GatedRmsNormParams n;
  n.x = s.out;
  n.z = p.v;
  n.weight = floats(1, kDeltaDim);
  n.heads = g_.value_heads;
  n.out = floats(rows_, shape.value_width());
  steps.push_back({"delta: gated norm", [this, n] { ops_.gated_rms_norm(n); }});
  linear(steps, "delta: output", n.out, {weight(g_.hidden, shape.value_width())});
}

void Layer::add_attention(std::vector<Step>& steps, TensorView x) {
  linear(steps, "attention: projections", x,
         {weight(g_.heads * 2 * kHeadDim, g_.hidden), weight(g_.kv_heads * kHeadDim, g_.hidden),
          weight(g_.kv_heads * kHeadDim, g_.hidden)});
  const std::size_t vectors = static_cast<std::size_t>(g_.kv_heads) * kKvPagePositions;
  const std::size_t codes = vectors * kHeadDim * 2, scales = vectors * 4;
  const int positions = context_ + rows_;
  for (int i = 0; i * kKvPagePositions < positions; ++i) {
    buffers_.push_back(ops_.allocate(2 * (codes + scales)));
    pages_.push_back(buffers_.back().as<std::byte>());
  }
  KvLayerView cache{.pages = pages_.data(),
                    .page_count = static_cast<int>(pages_.size()),
                    .key_codes = 0,
                    .key_scales = codes};
  cache.value_codes = codes + scales;
  cache.value_scales = 2 * codes + scales;
  cache.kv_heads = g_.kv_heads;
  cache.head_dim = kHeadDim;
  AttentionPrepareParams p;
  p.q_gate = floats(rows_, g_.heads * 2 * kHeadDim);
  p.k = floats(rows_, g_.kv_heads * kHeadDim);
  p.v = floats(rows_, g_.kv_heads * kHeadDim);
  p.q_norm = floats(1, kHeadDim);
  p.k_norm = floats(1, kHeadDim);
  p.positions = ints(1, rows_);
  std::iota(p.positions.row<std::int32_t>(0), p.positions.row<std::int32_t>(0) + rows_, context_);
  p.rope = {.cos = floats(positions, 32), .sin = floats(positions, 32), .rotary_dims = 64};
  p.heads = g_.heads;
  p.q = floats(rows_, g_.heads * kHeadDim);
  p.cache = cache;
  steps.push_back({"attention: norms, rotation, append", [this, p] { ops_.attention_prepare(p); }});
  AttendParams a;
  a.q = p.q;
  a.q_gate = p.q_gate;
  a.positions = p.positions;
  a.cache = cache;
  a.heads = g_.heads;
  a.scale_log2e = numerics::attention_scale_log2e(kHeadDim);
  a.out = floats(rows_, g_.heads * kHeadDim);
  steps.push_back({fmt::format("attention: {} positions", context_), [this, a] { ops_.attend(a); }});
  linear(steps, "attention: output", a.out, {weight(g_.hidden, g_.heads * kHeadDim)});
}

void Layer::add_feed_forward(std::vector<Step>& steps, TensorView x) {
  GatedLinearParams p;
  p.x = x;
  p.gate = weight(g_.feed_forward, g_.hidden);
  p.up = weight(g_.feed_forward, g_.hidden);
  p.gate_scratch = floats(rows_, g_.feed_forward);
  p.up_scratch = floats(rows_, g_.feed_forward);
  p.out = p.gate_scratch;
  steps.push_back({"feed-forward: gate, up", [this, p] { ops_.gated_linear(p); }});
  linear(steps, "feed-forward: down", p.out, {weight(g_.hidden, g_.feed_forward)});
  if (g_.experts == 0) return;
  linear(steps, "experts: router", x, {weight(g_.experts, g_.hidden, 8), weight(1, g_.hidden, 8)});
  RouteExpertsParams r;
  r.logits = floats(rows_, g_.experts);
  std::uint32_t seed = 3;
  for (int t = 0; t < rows_; ++t) {
    for (int e = 0; e < g_.experts; ++e)
      r.logits.row<float>(t)[e] = static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 8);
  }
  r.ids = ints(rows_, kChosen);
  r.weights = floats(rows_, kChosen);
  ops_.route_experts(r);
  steps.push_back({"experts: choice", [this, r] { ops_.route_experts(r); }});
  ExpertMlpParams e;
  e.x = x;
  e.ids = r.ids;
  e.weights = r.weights;
  e.gate = weight(g_.expert_width, g_.hidden, 4, g_.experts);
  e.up = weight(g_.expert_width, g_.hidden, 4, g_.experts);
  e.down = weight(g_.hidden, g_.expert_width, 4, g_.experts);
  e.shared = floats(rows_, g_.hidden);
  e.shared_gate = floats(rows_, 1);
  e.residual = floats(rows_, g_.hidden);
  e.out = floats(rows_, g_.hidden);
  steps.push_back({"experts: gate, up, down, sum", [this, e] { ops_.expert_mlp(e); }});
}

std::vector<Layer::Step> Layer::steps() {
  std::vector<Step> all;
  const TensorView x = floats(rows_, g_.hidden);
  RmsNormParams norm;
  norm.x = x;
  norm.weight = floats(1, g_.hidden);
  norm.out = floats(rows_, g_.hidden);
  all.push_back({"norm (two a layer)", [this, norm] {
                   ops_.rms_norm(norm);
                   ops_.rms_norm(norm);
                 }});
  add_delta(all, x);
  add_attention(all, x);
  add_feed_forward(all, x);
  return all;
}

void run(CpuIsa isa, int threads, bool cpu_clock, int context) {
  CpuOptions options;
  options.isa = isa;
  options.threads = threads;
  const std::unique_ptr<Ops> ops = make_cpu_ops(options);
  // Between two calls the caches are filled with something else, as the other layers of a model do.
  std::vector<std::uint64_t> other((std::size_t{48} << 20) / 8, 1);
  for (const Geometry& g : kGeometries) {
    for (const int rows : {1, 8, 128}) {
      Layer layer(*ops, g, rows, context);
      fmt::print("{}, {} rows, isa {}, {} threads\n", g.name, rows, cpu::select_kernels(isa).name, threads);
      for (const Layer::Step& step : layer.steps()) {
        std::vector<double> seconds;
        for (int r = 0; r < (rows == 128 ? 3 : 9); ++r) {
          for (std::uint64_t& w : other) ++w;
          const double start = now(cpu_clock);
          step.run();
          seconds.push_back(now(cpu_clock) - start);
        }
        std::sort(seconds.begin(), seconds.end());
        fmt::print("  {:<38} {:>10.1f} us\n", step.name, 1e6 * seconds[seconds.size() / 2]);
      }
    }
  }
}

}  // namespace
}  // namespace mererun::bench

/// mererun_ops_bench [threads [context [avx2]]]; threads 0: one, timed by the processor's clock of the
/// thread.
int main(int argc, char** argv) {
  using mererun::CpuIsa;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  const int context = argc > 2 ? std::atoi(argv[2]) : 4096;
  const CpuIsa isa = argc > 3 ? CpuIsa::kAvx2 : CpuIsa::kAuto;
  mererun::bench::run(isa, threads == 0 ? 1 : threads, threads == 0, context);
  return 0;
}
