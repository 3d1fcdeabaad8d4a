#include "tensor/tensor_view.h"

#include "base/error.h"

namespace mererun {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32: return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16: return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kF8E4M3: return 1;
  }
  return 0;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "F32";
    case DType::kBF16: return "BF16";
    case DType::kF16: return "F16";
    case DType::kI64: return "I64";
    case DType::kI32: return "I32";
    case DType::kI16: return "I16";
    case DType::kI8: return "I8";
    case DType::kU32: return "U32";
    case DType::kU8: return "U8";
    case DType::kF8E4M3: return "F8_E4M3";
  }
  return "?";
}

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact: at most 10 significant bits
  return sign != 0 ? -magnitude : magnitude;
}

TensorView TensorView::row_range(int first, int count) const {
  MERERUN_CHECK(first >= 0 && count >= 0 && first + count <= rows, "row range inside the view");
  TensorView v = *this;
  v.data = static_cast<char*>(data) + static_cast<std::int64_t>(size_of(dtype)) * first * row_stride;
  v.rows = count;
  return v;
}

TensorView TensorView::col_range(int first, int count) const {
  MERERUN_CHECK(first >= 0 && count >= 0 && first + count <= cols, "column range inside the view");
  TensorView v = *this;
  v.data = static_cast<char*>(data) + static_cast<std::int64_t>(size_of(dtype)) * first;
  v.cols = count;
  return v;
}

TensorView make_view(void* data, DType dtype, int rows, int cols) { return {data, dtype, rows, cols, cols}; }

}  // namespace mererun
