#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/code_span.cuh"

namespace mererun::cuda {

inline namespace activation_codes_cu {

constexpr int kThreads = 256;

/// Row t of x is coded as row t.
struct EveryRow {
  __device__ int row_of(int t) const { return t; }
};
/// Row c of block e holds what assignment c of entry e reads.
struct EntryRows {
  ExpertList list;
  ExpertRows rows_read;
  __device__ int row_of(int t) const {
    const int entry = t / kBlockColumns, column = t % kBlockColumns;
    if (entry >= *list.entries || column >= list.entry_count[entry]) return -1;
    return list.row_read(rows_read, list.entry_first[entry] + column);
  }
};

template <class Rows>
__global__ void __launch_bounds__(kThreads)
    code_rows_kernel(Matrix<const float> x, const __grid_constant__ Rows rows, ActivationCodes to) {
  if (to.starts_early()) let_successor_start();
  wait_for_predecessor();
  if (!to.starts_early()) let_successor_start();
  const int t = static_cast<int>(blockIdx.x);
  const int row = rows.row_of(t);
  const int first =
      (static_cast<int>(blockIdx.y) * (kThreads / 32) + static_cast<int>(threadIdx.x / 32)) * kCodeSpan;
  if (row < 0 || first >= to.in) return;
  const int i = first + 4 * static_cast<int>(threadIdx.x & 31);
  const bool live = i < to.in;
  float values[4] = {0, 0, 0, 0};
  if (live) {
    load_four(x.row(row) + i, values);
  }
  code_span(to, t, first, values, live);
}

template <class Rows>
void run(const LaunchContext& context, const TensorView& x, const Rows& rows, const ActivationCodes& to) {
  launch(context, "code_rows", code_rows_kernel<Rows>,
         {dim3(static_cast<unsigned>(to.rows), blocks_for(to.in, kCodeSpan * kThreads / 32)), dim3(kThreads)},
         matrix<const float>(x), rows, to);
}

}  // namespace activation_codes_cu

std::size_t codes_bytes(int rows, int in) {
  const auto blocks = static_cast<std::size_t>(blocks_for(rows, kBlockColumns));
  return blocks * static_cast<std::size_t>(in / 32) * kBlockColumns * 64;
}

std::size_t sides_bytes(int rows, int in, int group) {
  const auto blocks = static_cast<std::size_t>(blocks_for(rows, kBlockColumns));
  const auto even = static_cast<std::size_t>((in / group + 1) & ~1);
  return blocks * even * kBlockColumns * sizeof(float2);
}

void run_code_rows(const LaunchContext& context, const TensorView& x, const ActivationCodes& to) {
  run(context, x, EveryRow{}, to);
}

void run_code_entries(const LaunchContext& context, const TensorView& x, const ExpertList& list,
                      ExpertRows rows, const ActivationCodes& to) {
  run(context, x, EntryRows{list, rows}, to);
}

}  // namespace mererun::cuda
