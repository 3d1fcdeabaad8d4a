#include <fmt/format.h>

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
    {"27b delta inputs", 16480, 5120, 4}, {"27b attention inputs", 14336, 5120, 4},
    {"27b out", 5120, 6144, 4},           {"27b gate", 17408, 5120, 4},
    {"27b down", 5120, 17408, 4},         {"35b delta inputs", 12352, 2048, 4},
    {"35b out", 2048, 4096, 4},           {"35b router", 256, 2048, 8},
    {"35b shared down", 2048, 512, 4},    {"35b odd rows", 2041, 4096, 8},
};

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

/// Top-8 of 256 experts, as in the 35B.
void check_experts(Report& report, Ops& cpu, Ops& gpu, const RandomWeights& random) {
  constexpr int kHidden = 2048, kInner = 512, kExperts = 256, kChosen = 8;
  const auto run = [&](Ops& ops, int width) {
    const LinearHandle gate = ops.prepare_linear(random.affine("gate", kInner, kHidden, 4, kExperts));
    const LinearHandle up = ops.prepare_linear(random.affine("up", kInner, kHidden, 4, kExperts));
    const LinearHandle down = ops.prepare_linear(random.affine("down", kHidden, kInner, 4, kExperts));
    Rows rows(static_cast<std::uint32_t>(width));
    const auto n = static_cast<std::size_t>(width);
    std::vector<Buffer> keep;
    const TensorView x = put(ops, keep, rows(n * kHidden), width, kHidden);
    const TensorView logits = put(ops, keep, rows(n * kExperts), width, kExperts);
    const TensorView shared = put(ops, keep, rows(n * kHidden), width, kHidden);
    const TensorView shared_gate = put(ops, keep, rows(n), width, 1);
    const TensorView residual = put(ops, keep, rows(n * kHidden), width, kHidden);
    const TensorView weights = put(ops, keep, std::vector<float>(n * kChosen), width, kChosen);
    TensorView ids = put(ops, keep, std::vector<float>(n * kChosen), width, kChosen);
    ids.dtype = DType::kI32;
    ops.route_experts(
        {.logits = logits, .forced_ids = {}, .normalise = true, .ids = ids, .weights = weights});
    ops.expert_mlp({.x = x,
                    .ids = ids,
                    .weights = weights,
                    .gate = gate.get(),
                    .up = up.get(),
                    .down = down.get(),
                    .shared = shared,
                    .shared_gate = shared_gate,
                    .residual = residual,
                    .out = residual});
    return hash_floats(take(ops, residual));
  };
  std::string wrong;
  for (const int width : {1, 4, 8, 9, 32, 100}) {
    if (run(cpu, width) != run(gpu, width)) wrong += fmt::format("{} ", width);
  }
  report.add({fmt::format(R"({{"check":"expert bits","shape":"35b experts","wrongWidths":"{}","pass":{}}})",
                          wrong, wrong.empty()),
              wrong.empty()});
}

}  // namespace

void check_true_shapes(Report& report) {
  const RandomWeights random(std::size_t{256} * 2048 * 512, std::size_t{256} * 2048 * 512 / 64);
  const auto cpu = make_cpu_ops({});
  const auto gpu = make_cuda_ops({});
  for (const Shape& shape : kShapes) check_linear(report, *cpu, *gpu, random, shape);
  check_experts(report, *cpu, *gpu, random);
}

}  // namespace mererun::cuda_check
