#include <string>

#include "base/error.h"
#include "kernels/cuda/delta.h"
#include "kernels/cuda/device.cuh"
#include "kernels/numerics.h"

namespace mererun::cuda {

namespace {

namespace nm = numerics;

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kColumns = 8;     // value columns of a warp, four lanes each
constexpr int kStagedRows = 8;  // rows whose q and k a block stages at once

struct Step {
  int key_dim, value_dim, heads_per_key, rows;
  Matrix<const float> q, k, v, alpha, beta;
  Matrix<float> state, u, out;
  bool store, log, is_settled;
};

/// The 16 accumulators of a dot product, four a lane: lane p of a column's four holds 4p .. 4p + 3.
__device__ __forceinline__ float join(const float (&a)[4]) {
  float sum = (a[0] + a[1]) + (a[2] + a[3]);
  sum = sum + __shfl_xor_sync(kAllLanes, sum, 1);
  return sum + __shfl_xor_sync(kAllLanes, sum, 2);
}

/// One warp runs 8 columns of one head through all rows with the state in registers. kRuns = Dk / 16; 0: Dk
/// is read from the params and the state may live in local memory.
template <int kRuns>
__global__ void __launch_bounds__(kThreads) delta_step_kernel(Step p) {
  constexpr int kMost = kRuns > 0 ? kRuns : 64;
  extern __shared__ float staged[];  // [kStagedRows][2][Dk]: k, q
  if (!p.is_settled) wait_for_predecessor();
  const int runs = kRuns > 0 ? kRuns : p.key_dim / 16;
  const int dim = 16 * runs;
  const int head = static_cast<int>(blockIdx.y);
  const int key_offset = head / p.heads_per_key * dim;
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int part = lane & 3;
  const int c =
      (static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32)) * kColumns + lane / 4;
  const bool live = c < p.value_dim;
  const int column = live ? c : p.value_dim - 1;
  const int at = head * p.value_dim + column;

  float s[kMost][4];
#pragma unroll
  for (int i = 0; i < runs; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) s[i][j] = p.state.row(head * dim + 16 * i + 4 * part + j)[column];
  }
  if (p.is_settled) wait_for_predecessor();
  let_successor_start();
  for (int first = 0; first < p.rows; first += kStagedRows) {
    const int count = p.rows - first < kStagedRows ? p.rows - first : kStagedRows;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count * dim; i += kThreads) {
      const int t = i / dim;
      staged[2 * t * dim + i % dim] = p.k.row(first + t)[key_offset + i % dim];
      staged[(2 * t + 1) * dim + i % dim] = p.q.row(first + t)[key_offset + i % dim];
    }
    __syncthreads();
    for (int r = 0; r < count; ++r) {
      const int t = first + r;
      const float* k = staged + 2 * r * dim + 4 * part;
      const float* q = k + dim;
      const float alpha = p.alpha.row(t)[head];
      float acc[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < runs; ++i) {
        const float4 key = *reinterpret_cast<const float4*>(k + 16 * i);
        s[i][0] = alpha * s[i][0];
        s[i][1] = alpha * s[i][1];
        s[i][2] = alpha * s[i][2];
        s[i][3] = alpha * s[i][3];
        acc[0] = nm::fma_f32(s[i][0], key.x, acc[0]);
        acc[1] = nm::fma_f32(s[i][1], key.y, acc[1]);
        acc[2] = nm::fma_f32(s[i][2], key.z, acc[2]);
        acc[3] = nm::fma_f32(s[i][3], key.w, acc[3]);
      }
      const float read = join(acc);
      const float u = p.beta.row(t)[head] * (p.v.row(t)[at] - read);
      float sum[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < runs; ++i) {
        const float4 key = *reinterpret_cast<const float4*>(k + 16 * i);
        const float4 query = *reinterpret_cast<const float4*>(q + 16 * i);
        s[i][0] = nm::fma_f32(u, key.x, s[i][0]);
        s[i][1] = nm::fma_f32(u, key.y, s[i][1]);
        s[i][2] = nm::fma_f32(u, key.z, s[i][2]);
        s[i][3] = nm::fma_f32(u, key.w, s[i][3]);
        sum[0] = nm::fma_f32(s[i][0], query.x, sum[0]);
        sum[1] = nm::fma_f32(s[i][1], query.y, sum[1]);
        sum[2] = nm::fma_f32(s[i][2], query.z, sum[2]);
        sum[3] = nm::fma_f32(s[i][3], query.w, sum[3]);
      }
      const float o = join(sum);
      if (live && part == 0) p.out.row(t)[at] = o;
      if (live && part == 1 && p.log) p.u.row(t)[at] = u;
    }
  }
  if (!p.store || !live) return;
#pragma unroll
  for (int i = 0; i < runs; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) p.state.row(head * dim + 16 * i + 4 * part + j)[column] = s[i][j];
  }
}

}  // namespace

void run_delta_step(const LaunchContext& context, const DeltaStepParams& p, bool state_is_settled) {
  const DeltaShape& s = p.shape;
  const Step args{s.key_dim,
                  s.value_dim,
                  s.value_heads / s.key_heads,
                  p.q.rows,
                  matrix<const float>(p.q),
                  matrix<const float>(p.k),
                  matrix<const float>(p.v),
                  matrix<const float>(p.alpha),
                  matrix<const float>(p.beta),
                  matrix<float>(p.state),
                  matrix<float>(p.u),
                  matrix<float>(p.out),
                  p.write == StateWrite::kStore,
                  !p.u.empty(),
                  state_is_settled};
  if (s.key_dim > 1024) {
    fail_expected(ErrorCode::kUnsupported, "delta_step shape.key_dim", "at most 1024 on cuda",
                  std::to_string(s.key_dim));
  }
  const LaunchShape shape{
      dim3(blocks_for(s.value_dim, kWarps * kColumns), static_cast<unsigned>(s.value_heads)), dim3(kThreads),
      sizeof(float) * 2 * kStagedRows * static_cast<std::size_t>(s.key_dim)};
  void (*kernel)(Step) = delta_step_kernel<0>;
  if (s.key_dim == 128) kernel = delta_step_kernel<8>;
  if (s.key_dim == 64) kernel = delta_step_kernel<4>;
  allow_shared(kernel, shape.shared_bytes);
  launch(context, "delta_step", kernel, shape, args);
}

}  // namespace mererun::cuda
