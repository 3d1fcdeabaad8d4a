#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace mererun {

/// A borrowed two-dimensional row-major array: `rows` lines of `cols` elements, `row_stride` elements apart.
/// Vectors are views of one row. Never owns memory.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rows = 0;
  int cols = 0;
  std::int64_t row_stride = 0;  // elements between the starts of two lines; >= cols

  template <typename T>
  T* row(std::int64_t r) const {
    return static_cast<T*>(data) + r * row_stride;
  }
  /// Lines [first, first + count) of this view.
  TensorView row_range(int first, int count) const;
  /// Columns [first, first + count) of every line.
  TensorView col_range(int first, int count) const;
  bool empty() const { return data == nullptr; }
};

/// A dense view: row_stride = cols.
TensorView make_view(void* data, DType dtype, int rows, int cols);

}  // namespace mererun
