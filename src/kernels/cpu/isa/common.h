#pragma once

// Helpers of the kernels, inside the anonymous namespace of one instruction set. Everything here is inlined
// or local: a file compiled for a wide instruction set must not export code that a baseline file could be
// linked with.

template <int kIndex>
struct Index {
  static constexpr int value = kIndex;
};

/// Calls f(Index<0>) ... f(Index<kCount - 1>).
template <int kCount, int kFrom = 0, typename F>
MERERUN_VEC void unrolled(F&& f) {
  if constexpr (kFrom < kCount) {
    f(Index<kFrom>{});
    unrolled<kCount, kFrom + 1>(f);
  }
}

template <typename T>
MERERUN_VEC T* line(const TensorView& v, std::int64_t r) {
  return static_cast<T*>(v.data) + r * v.row_stride;
}
MERERUN_VEC int smaller(int a, int b) { return a < b ? a : b; }
MERERUN_VEC int larger(int a, int b) { return a > b ? a : b; }

/// Fetches what a stream of weights reaches after the line at `p`. In two steps, because more lines can be on
/// their way to the second-level cache than to the first; the hardware's own prefetch stops at pages and
/// starts late. Past the last panel the hint is ignored.
MERERUN_VEC void fetch_ahead(const std::byte* p) {
  __builtin_prefetch(p + 8192, 0, 2);
  __builtin_prefetch(p + 512);
}

MERERUN_VEC F16 load_side(DType dtype, const std::byte* p) {
  if (dtype == DType::kBF16) return load_bf16(p);
  if (dtype == DType::kF16) return load_f16(p);
  return load<F16>(reinterpret_cast<const float*>(p));
}
MERERUN_VEC int side_bytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

/// Scratch of the linear kernels, at the start of a worker's scratch.
struct LinearScratch {
  float slices[numerics::kLinearSlices][kMaxPassRows][kPanelRows];
  float first[kMaxPassRows][kPanelRows];
  float second[kMaxPassRows][kPanelRows];
  std::byte unpacked[16 * kUnitCodes * 64 / 2];   // 512 codes of 16 rows as int16
  std::int32_t dots[16 * kTileRows][kPanelRows];  // of 512 codes: groups of at least 32
  std::byte planes[2 * kPlaneCodes];              // of one row
};

/// numerics::slice_begin without its division: there are 1 or 8 slices.
MERERUN_VEC int begin_of(int slice, int slices, int groups) {
  if (slices == 1) return numerics::slice_begin(slice, 1, groups);
  return numerics::slice_begin(slice, numerics::kLinearSlices, groups);
}

/// The contract's sum of eight slices; part(j) is slice j's.
template <typename F>
MERERUN_VEC F16 join_slices(F&& part) {
  const F16 low = add(add(part(0), part(1)), add(part(2), part(3)));
  const F16 high = add(add(part(4), part(5)), add(part(6), part(7)));
  return add(low, high);
}
