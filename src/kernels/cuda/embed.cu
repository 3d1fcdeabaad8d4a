#include "kernels/cuda/device.cuh"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/stored.cuh"

namespace mererun::cuda {

inline namespace embed_cu {

constexpr int kThreads = 256;

struct Embed {
  const std::uint8_t *weight, *scales, *biases;
  bool affine;
  DType dtype;
  int bits, group, in, vocabulary;
  std::int64_t row_bytes;
  const int* ids;
  Matrix<float> out;
};

__global__ void __launch_bounds__(kThreads) embed_kernel(Embed p) {
  wait_for_predecessor();
  let_successor_start();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= p.in) return;
  const int t = static_cast<int>(blockIdx.y);
  const std::int64_t id = p.ids[t];
  float* to = p.out.row(t) + i;
  if (id < 0 || id >= p.vocabulary) {
    *to = numerics::quiet_nan();
  } else if (!p.affine) {
    *to = widened(p.weight, id * p.in + i, p.dtype);
  } else {
    const std::int64_t side = id * (p.in / p.group) + i / p.group;
    const auto code = static_cast<float>(stored_code(p.weight + id * p.row_bytes, p.bits, i));
    *to = numerics::fma_f32(widened(p.scales, side, p.dtype), code, widened(p.biases, side, p.dtype));
  }
}

}  // namespace embed_cu

void run_embed_rows(const LaunchContext& context, const LinearSource& stored, const int* ids,
                    const TensorView& out) {
  const Embed args{static_cast<const std::uint8_t*>(stored.weight),
                   static_cast<const std::uint8_t*>(stored.scales),
                   static_cast<const std::uint8_t*>(stored.biases),
                   stored.format == WeightFormat::kAffine,
                   stored.dtype,
                   stored.bits,
                   stored.group > 0 ? stored.group : 1,
                   stored.in,
                   stored.out,
                   stored.weight_row_bytes(),
                   ids,
                   matrix<float>(out)};
  launch(context, "embed_rows", embed_kernel,
         {dim3(blocks_for(out.cols, kThreads), static_cast<unsigned>(out.rows)), dim3(kThreads)}, args);
}

}  // namespace mererun::cuda
