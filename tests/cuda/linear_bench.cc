#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "kernels/cuda/cuda_ops.h"
#include "tests/cuda/checks.h"
#include "tests/cuda/random_weights.h"
#include "tests/cuda/read_ceiling.h"

namespace mererun::cuda_check {

namespace {

struct Shape {
  const char* name;
  int out, in, copies;  // copies: together far more than the second-level cache
  bool gated;
};
constexpr Shape kShapes[] = {
    {"27b delta inputs", 16480, 5120, 6, false}, {"27b out", 5120, 6144, 12, false},
    {"27b gate and up", 17408, 5120, 4, true},   {"27b down", 5120, 17408, 6, false},
    {"27b head", 248320, 5120, 1, false},        {"35b delta inputs", 12352, 2048, 16, false},
    {"35b out", 2048, 4096, 32, false},          {"35b head", 248320, 2048, 2, false},
};

class Bench {
 public:
  Bench(Report& report, double ceiling) : report_(report), ceiling_(ceiling), ops_({}, CudaGraphs::kOff) {}

  void run(const RandomWeights& random, const Shape& shape) {
    std::vector<LinearHandle> weights;
    for (int i = 0; i < shape.copies * (shape.gated ? 2 : 1); ++i) {
      weights.push_back(ops_.prepare_linear(random.affine(shape.name, shape.out, shape.in)));
    }
    const double bytes = static_cast<double>(shape.out) * shape.in * 0.5625 * (shape.gated ? 2 : 1);
    const double products = static_cast<double>(shape.out) * shape.in * (shape.gated ? 2 : 1);
    std::string times;
    for (const int width : {1, 2, 4, 8, 9, 16, 32, 128, 1024}) {
      const double us = median_us(shape, weights, width);
      times += fmt::format(
          R"({}{{"columns":{},"us":{:.2f},"tbPerS":{:.3f},"ofCeiling":{:.3f},"productsT":{:.1f}}})",
          times.empty() ? "" : ",", width, us, bytes / us / 1e6, bytes / us / 1e6 / ceiling_,
          products * width / us / 1e6);
    }
    report_.add({fmt::format(R"({{"bench":"linear","shape":"{}","out":{},"in":{},"gated":{},"times":[{}]}})",
                             shape.name, shape.out, shape.in, shape.gated, times),
                 true});
  }

 private:
  /// One call per copy, coding of the input included, as a graph; microseconds a call.
  double median_us(const Shape& shape, const std::vector<LinearHandle>& weights, int width) {
    const auto count = static_cast<std::size_t>(width) * static_cast<std::size_t>(shape.in);
    const auto out_bytes = static_cast<std::size_t>(width) * static_cast<std::size_t>(shape.out) * 4;
    const Buffer in = ops_.allocate(count * 4), out = ops_.allocate(out_bytes),
                 other = ops_.allocate(out_bytes);
    std::mt19937 engine(3);
    std::normal_distribution<float> normal;
    std::vector<float> x(count);
    for (float& value : x) value = normal(engine);
    ops_.upload(in.data(), x.data(), count * 4);
    const auto view = [&](const Buffer& b, int cols) {
      return make_view(b.data(), DType::kF32, width, cols);
    };
    const auto queue = [&] {
      for (int i = 0; i < shape.copies; ++i) {
        if (shape.gated) {
          ops_.gated_linear({.x = view(in, shape.in),
                             .gate = weights[static_cast<std::size_t>(2 * i)].get(),
                             .up = weights[static_cast<std::size_t>(2 * i + 1)].get(),
                             .gate_scratch = view(out, shape.out),
                             .up_scratch = view(other, shape.out),
                             .out = view(out, shape.out)});
        } else {
          const LinearParams::Target target{
              weights[static_cast<std::size_t>(i)].get(), view(out, shape.out), {}};
          ops_.linear({.x = view(in, shape.in), .targets = {&target, 1}});
        }
      }
    };
    queue();  // scratch settles
    ops_.synchronize();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    const cudaStream_t stream = ops_.stream().get();
    cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    queue();
    cuda::check(cudaStreamEndCapture(stream, &graph), "capture");
    cuda::check(cudaGraphInstantiate(&exec, graph, 0), "graph");
    cuda::Event start(cuda::Event::Timing::kOn), end(cuda::Event::Timing::kOn);
    std::vector<float> times;
    for (int i = 0; i < 24; ++i) {
      start.record(ops_.stream());
      cuda::check(cudaGraphLaunch(exec, stream), "graph launch");
      end.record(ops_.stream());
      end.synchronize();
      if (i >= 4) times.push_back(end.milliseconds_since(start));
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    std::sort(times.begin(), times.end());
    return static_cast<double>(times[times.size() / 2]) * 1e3 / shape.copies;
  }

  Report& report_;
  double ceiling_;
  cuda::CudaOps ops_;
};

}  // namespace

void bench_linears(Report& report) {
  const double ceiling = read_ceiling_tb_per_s();
  const cuda::DeviceInfo info = cuda::device_info(0);
  report.add(
      {fmt::format(R"({{"bench":"read ceiling","device":"{}","driver":{},"runtime":{},"tbPerS":{:.3f}}})",
                   info.name, info.driver, info.runtime, ceiling),
       true});
  const MatrixClocks clocks = matrix_clocks();
  report.add({fmt::format(R"({{"bench":"matrix instructions","clocksInt8":{:.2f},"clocksHalf":{:.2f}}})",
                          clocks.int8, clocks.half),
              true});
  const RandomWeights random(std::size_t{248320} * 5120 / 2, std::size_t{248320} * 5120 / 64);
  Bench bench(report, ceiling);
  for (const Shape& shape : kShapes) bench.run(random, shape);
}

}  // namespace mererun::cuda_check
