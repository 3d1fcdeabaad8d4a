#include <string>

#include "base/error.h"
#include "kernels/cuda/delta.h"
#include "kernels/cuda/delta_row.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/numerics.h"

namespace mererun::cuda {

inline namespace delta_step_cu {

namespace nm = numerics;

constexpr int kBlockValues = 32;  // value columns of a block, four lanes each
constexpr int kThreads = 4 * kBlockValues;
constexpr int kStagedRows =
    8;  // rows whose inputs a block stages at once, while the ones before are computed

/// Floats of one staged row: k, q, the block's v, alpha and beta, padded to whole vectors.
MERERUN_HD constexpr int staged_floats(int key_dim) { return 2 * key_dim + kBlockValues + 4; }

struct Step {
  int key_dim, value_dim, heads_per_key, rows;
  Matrix<const float> q, k, v, alpha, beta;
  Matrix<float> state, u, out;
  bool store, log, is_settled;
};

/// Copies 1 or 4 floats to shared memory in the background.
template <int kFloats>
__device__ __forceinline__ void copy_async(float* shared, const float* global) {
  if constexpr (kFloats == 4) {
    copy_async16(shared, global);
  } else {
    copy_async4(shared, global);
  }
}

/// A block runs 32 columns of one head through all rows with the state in registers. kRuns = Dk / 16, rows of
/// q and k are whole vectors; 0: Dk is read from the params and the state may live in local memory.
template <int kRuns>
__global__ void __launch_bounds__(kThreads) delta_step_kernel(Step p) {
  constexpr int kMost = kRuns > 0 ? kRuns : 64;
  constexpr int kCopied = kRuns > 0 ? 4 : 1;       // floats at a time
  extern __shared__ __align__(16) float staged[];  // [2][kStagedRows][staged_floats]
  if (!p.is_settled) wait_for_predecessor();
  const int runs = kRuns > 0 ? kRuns : p.key_dim / 16;
  const int dim = 16 * runs;
  const int head = static_cast<int>(blockIdx.y);
  const int key_offset = head / p.heads_per_key * dim;
  const auto thread = static_cast<int>(threadIdx.x);
  const int part = thread & 3;
  const int first_value = head * p.value_dim + static_cast<int>(blockIdx.x) * kBlockValues;
  const int values = min(kBlockValues, p.value_dim - static_cast<int>(blockIdx.x) * kBlockValues);
  const bool live = thread / 4 < values;
  const int value = live ? thread / 4 : values - 1;  // of the block's
  const int column = first_value - head * p.value_dim + value;

  float s[kMost][4];
#pragma unroll
  for (int i = 0; i < runs; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) s[i][j] = p.state.row(head * dim + 16 * i + 4 * part + j)[column];
  }
  if (p.is_settled) wait_for_predecessor();
  let_successor_start();
  const int row_floats = staged_floats(dim);
  const auto stage = [&](int first) {
    float* to = staged + first / kStagedRows % 2 * kStagedRows * row_floats;
    const int count = min(kStagedRows, p.rows - first);
    const int vectors = dim / kCopied;  // of a key
    for (int i = thread; i < count * vectors; i += kThreads) {
      const int t = i / vectors, j = i % vectors * kCopied;
      copy_async<kCopied>(to + t * row_floats + j, p.k.row(first + t) + key_offset + j);
      copy_async<kCopied>(to + t * row_floats + dim + j, p.q.row(first + t) + key_offset + j);
    }
    to += 2 * dim;
    for (int i = thread; i < count * kBlockValues; i += kThreads) {
      const int t = i / kBlockValues, j = i % kBlockValues;
      if (j < values) copy_async<1>(to + t * row_floats + j, p.v.row(first + t) + first_value + j);
    }
    to += kBlockValues;
    for (int i = thread; i < count * 2; i += kThreads) {
      const Matrix<const float>& from = i % 2 == 0 ? p.alpha : p.beta;
      copy_async<1>(to + i / 2 * row_floats + i % 2, from.row(first + i / 2) + head);
    }
    copy_commit();
  };
  stage(0);
  for (int first = 0; first < p.rows; first += kStagedRows) {
    const int end = min(first + kStagedRows, p.rows);
    __syncthreads();  // the rows before the last are no longer read
    stage(first + kStagedRows);
    copy_wait<1>();
    __syncthreads();
    const float* row = staged + first / kStagedRows % 2 * kStagedRows * row_floats;
    for (int t = first; t < end; ++t, row += row_floats) {
      const float* rest = row + 2 * dim;
      const float alpha = rest[kBlockValues], beta = rest[kBlockValues + 1];
      const float* k = row + 4 * part;
      const float* q = k + dim;
      const DeltaRow r = step_row(s, runs, k, q, rest[value], alpha, beta);
      if (live && part == 0) p.out.row(t)[first_value + value] = r.o;
      if (live && part == 1 && p.log) p.u.row(t)[first_value + value] = r.u;
    }
  }
  if (!p.store || !live) return;
#pragma unroll
  for (int i = 0; i < runs; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) p.state.row(head * dim + 16 * i + 4 * part + j)[column] = s[i][j];
  }
}

bool is_whole_vectors(const TensorView& rows) {
  return rows.row_stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(rows.data) % sizeof(float4) == 0;
}

}  // namespace delta_step_cu

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
  const dim3 grid(blocks_for(s.value_dim, kBlockValues), static_cast<unsigned>(s.value_heads));
  const std::size_t staged =
      sizeof(float) * 2 * kStagedRows * static_cast<std::size_t>(staged_floats(s.key_dim));
  const LaunchShape shape{grid, dim3(kThreads), context.spread(grid.x * grid.y, staged)};
  void (*kernel)(Step) = delta_step_kernel<0>;
  if (is_whole_vectors(p.q) && is_whole_vectors(p.k)) {
    if (s.key_dim == 128) kernel = delta_step_kernel<8>;
    if (s.key_dim == 64) kernel = delta_step_kernel<4>;
  }
  allow_shared(kernel, shape.shared_bytes);
  launch(context, "delta_step", kernel, shape, args);
}

}  // namespace mererun::cuda
