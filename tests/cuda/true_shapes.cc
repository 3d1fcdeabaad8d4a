#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "kernels/ops.h"
#include "tests/cuda/checks.h"
#include "tests/cuda/random_weights.h"

namespace mererun::cuda_check {

namespace {

struct Shape {
  const char* name;
  int out, in, bits;
};
constexpr Shape kShapes[] = {
    {"27b delta inputs", 16480, 5120, 4},
    {"27b attention inputs", 14336, 5120, 4},
    {"27b out", 5120, 6144, 4},
    {"27b gate", 17408, 5120, 4},
    {"27b down", 5120, 17408, 4},
    {"35b delta inputs", 12352, 2048, 4},
    {"35b out", 2048, 4096, 4},
    {"35b router", 256, 2048, 8},
    {"35b shared down", 2048, 512, 4},
    {"35b odd rows", 2041, 4096, 8},
    {"flash streams down", 320, 10240, 4},
    {"flash streams up", 10240, 320, 4},
    {"flash inject", 4, 10240, 4},
    {"flash n-gram key", 10240, 2560, 4},
};

struct ExpertShape {
  const char* name;
  int hidden, inner, experts, chosen, bits;

  std::size_t elements() const {
    return static_cast<std::size_t>(experts) * static_cast<std::size_t>(inner) *
           static_cast<std::size_t>(hidden);
  }
};
constexpr ExpertShape kExpertShapes[] = {{"35b experts", 2048, 512, 256, 8, 4},
                                         {"flash experts", 2560, 640, 512, 10, 3}};

class Rows {
 public:
  explicit Rows(std::uint32_t seed) : engine_(seed) {}
  std::vector<float> operator()(std::size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& x : values) x = normal(engine_) * (engine_() % 512 == 0 ? 30.0f : 1.0f);
    return values;
  }

 private:
  std::mt19937 engine_;
};

TensorView put(Ops& ops, std::vector<Buffer>& keep, const std::vector<float>& values, int rows, int cols) {
  keep.push_back(ops.allocate(values.size() * sizeof(float)));
  ops.upload(keep.back().data(), values.data(), values.size() * sizeof(float));
  return make_view(keep.back().data(), DType::kF32, rows, cols);
}

std::vector<float> take(Ops& ops, const TensorView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.rows) * static_cast<std::size_t>(view.cols));
  ops.download(values.data(), view.data, values.size() * sizeof(float));
  return values;
}

std::uint64_t run_linear(Ops& ops, const LinearWeight& weight, const std::vector<float>& x, int rows) {
  std::vector<Buffer> keep;
  const TensorView in = put(ops, keep, x, rows, weight.in());
  const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(weight.out());
  const TensorView out = put(ops, keep, std::vector<float>(count, -1.0f), rows, weight.out());
  const LinearParams::Target target{&weight, out, {}};
  ops.linear({.x = in, .targets = {&target, 1}});
  return hash_floats(take(ops, out));
}

void check_linear(Report& report, Ops& cpu, Ops& gpu, const RandomWeights& random, const Shape& shape) {
  const LinearSource source = random.affine(shape.name, shape.out, shape.in, shape.bits);
  const LinearHandle on_cpu = cpu.prepare_linear(source);
  const LinearHandle on_gpu = gpu.prepare_linear(source);
  std::string widths, wrong;
  Rows rows(static_cast<std::uint32_t>(shape.out));
  for (const int width : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 32, 33, 70, 100, 130, 200}) {
    const auto x = rows(static_cast<std::size_t>(width) * static_cast<std::size_t>(shape.in));
    const bool same = run_linear(cpu, *on_cpu, x, width) == run_linear(gpu, *on_gpu, x, width);
    if (!same) wrong += fmt::format("{} ", width);
  }
  report.add(
      {fmt::format(
           R"({{"check":"linear bits","shape":"{}","out":{},"in":{},"bits":{},"wrongWidths":"{}","pass":{}}})",
           shape.name, shape.out, shape.in, shape.bits, wrong, wrong.empty()),
       wrong.empty()});
}

class Experts {
 public:
  Experts(Ops& ops, const RandomWeights& random, const ExpertShape& shape)
      : ops_(ops),
        s_(shape),
        gate_(ops.prepare_linear(random.affine("gate", s_.inner, s_.hidden, s_.bits, s_.experts))),
        up_(ops.prepare_linear(random.affine("up", s_.inner, s_.hidden, s_.bits, s_.experts))),
        down_(ops.prepare_linear(random.affine("down", s_.hidden, s_.inner, s_.bits, s_.experts))),
        shared_gate_(ops.prepare_linear(random.affine("shared gate", s_.inner, s_.hidden, s_.bits))),
        shared_up_(ops.prepare_linear(random.affine("shared up", s_.inner, s_.hidden, s_.bits))),
        shared_down_(ops.prepare_linear(random.affine("shared down", s_.hidden, s_.inner, s_.bits))) {}

  std::uint64_t run(int width) {
    Rows rows(static_cast<std::uint32_t>(width));
    std::vector<Buffer> keep;
    const auto random = [&](int cols) {
      return put(ops_, keep, rows(static_cast<std::size_t>(width) * static_cast<std::size_t>(cols)), width,
                 cols);
    };
    const TensorView x = random(s_.hidden), logits = random(s_.experts), residual = random(s_.hidden),
                     weights = random(s_.chosen);
    TensorView ids = random(s_.chosen);
    ids.dtype = DType::kI32;
    ops_.route_experts(
        {.logits = logits, .forced_ids = {}, .normalise = true, .ids = ids, .weights = weights});
    ops_.expert_mlp({.x = x,
                     .ids = ids,
                     .weights = weights,
                     .gate = gate_.get(),
                     .up = up_.get(),
                     .down = down_.get(),
                     .shared = {.gate = shared_gate_.get(),
                                .up = shared_up_.get(),
                                .down = shared_down_.get(),
                                .logits = random(1),
                                .gate_scratch = random(s_.inner),
                                .up_scratch = random(s_.inner),
                                .out_scratch = random(s_.hidden)},
                     .residual = residual,
                     .out = residual});
    return hash_floats(take(ops_, residual));
  }

 private:
  Ops& ops_;
  ExpertShape s_;
  LinearHandle gate_, up_, down_, shared_gate_, shared_up_, shared_down_;
};

void check_experts(Report& report, Ops& cpu, Ops& gpu, const RandomWeights& random,
                   const ExpertShape& shape) {
  Experts on_cpu(cpu, random, shape), on_gpu(gpu, random, shape);
  std::string wrong;
  for (const int width : {1, 2, 4, 8, 9, 16, 32, 33, 64, 100}) {
    if (on_cpu.run(width) != on_gpu.run(width)) wrong += fmt::format("{} ", width);
  }
  report.add({fmt::format(R"({{"check":"expert bits","shape":"{}","wrongWidths":"{}","pass":{}}})",
                          shape.name, wrong, wrong.empty()),
              wrong.empty()});
}

}  // namespace

void check_true_shapes(Report& report) {
  std::size_t most_bytes = std::size_t{256} * 2048 * 512, most_sides = 0;
  for (const ExpertShape& shape : kExpertShapes) {
    most_bytes = std::max(most_bytes, shape.elements() * static_cast<std::size_t>(shape.bits) / 8);
    most_sides = std::max(most_sides, shape.elements() / 64);
  }
  const RandomWeights random(most_bytes, most_sides);
  const auto cpu = make_cpu_ops({});
  const auto gpu = make_cuda_ops({});
  for (const Shape& shape : kShapes) check_linear(report, *cpu, *gpu, random, shape);
  for (const ExpertShape& shape : kExpertShapes) check_experts(report, *cpu, *gpu, random, shape);
}

}  // namespace mererun::cuda_check
