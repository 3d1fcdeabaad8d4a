#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/code_span.cuh"

namespace mererun::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) code_rows_kernel(Matrix<const float> x, ActivationCodes to) {
  wait_for_predecessor();
  let_successor_start();
  const int t = static_cast<int>(blockIdx.y);
  const int first =
      (static_cast<int>(blockIdx.x) * (kThreads / 32) + static_cast<int>(threadIdx.x / 32)) * kCodeSpan;
  if (first >= to.in) return;
  const int i = first + 4 * static_cast<int>(threadIdx.x & 31);
  const bool live = i < to.in;
  float values[4] = {0, 0, 0, 0};
  if (live) {
    const float* from = x.row(t) + i;
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] = from[j];
  }
  code_span(to, t, first, values, live);
}

}  // namespace

std::size_t codes_bytes(int rows, int in) {
  const auto blocks = static_cast<std::size_t>(blocks_for(rows, kBlockColumns));
  return blocks * static_cast<std::size_t>(in / 32) * kBlockColumns * 64;
}

std::size_t sides_bytes(int rows, int in, int group) {
  const auto blocks = static_cast<std::size_t>(blocks_for(rows, kBlockColumns));
  return blocks * static_cast<std::size_t>(in / group) * kBlockColumns * sizeof(float2);
}

void run_code_rows(const LaunchContext& context, const TensorView& x, const ActivationCodes& to) {
  launch(context, "code_rows", code_rows_kernel,
         {dim3(blocks_for(to.in, kCodeSpan * kThreads / 32), static_cast<unsigned>(to.rows)), dim3(kThreads)},
         matrix<const float>(x), to);
}

}  // namespace mererun::cuda
