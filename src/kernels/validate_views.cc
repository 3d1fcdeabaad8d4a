#include "kernels/validate_views.h"

#include <fmt/format.h>

#include "base/error.h"

namespace mererun {

namespace {

[[noreturn]] void fail(std::string_view op, std::string_view field, std::string_view expected,
                       std::string_view got) {
  fail_expected(ErrorCode::kInvalidArgument, fmt::format("{} {}", op, field), expected, got);
}

bool is_same_view(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.row_stride == b.row_stride && a.dtype == b.dtype;
}

}  // namespace

bool views_overlap(const TensorView& a, const TensorView& b) {
  if (a.empty() || b.empty() || a.rows <= 0 || b.rows <= 0 || a.cols <= 0 || b.cols <= 0) return false;
  const auto a_size = static_cast<std::int64_t>(size_of(a.dtype));
  const auto b_size = static_cast<std::int64_t>(size_of(b.dtype));
  const auto a_first = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(a.data));
  const auto b_first = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(b.data));
  const std::int64_t a_end = a_first + ((a.rows - 1) * a.row_stride + a.cols) * a_size;
  const std::int64_t b_end = b_first + ((b.rows - 1) * b.row_stride + b.cols) * b_size;
  if (a_end <= b_first || b_end <= a_first) return false;
  const std::int64_t stride = a.row_stride * a_size;
  if (stride != b.row_stride * b_size || stride <= 0) return true;
  // Lines of equal pitch: compare the columns within the pitch.
  const std::int64_t offset = ((b_first - a_first) % stride + stride) % stride;
  return !(offset >= a.cols * a_size && offset + b.cols * b_size <= stride);
}

void ViewChecks::require(bool holds, std::string_view field, std::string_view expected,
                         std::string_view got) const {
  if (!holds) fail(op_, field, expected, got);
}

void ViewChecks::shape(std::string_view field, const TensorView& view, DType dtype, int rows,
                       int cols) const {
  if (view.dtype != dtype || view.rows != rows || view.cols != cols) {
    fail(op_, field, fmt::format("[{}, {}] {}", rows, cols, name_of(dtype)),
         fmt::format("[{}, {}] {}", view.rows, view.cols, name_of(view.dtype)));
  }
  if (rows <= 0 || cols <= 0) return;
  if (view.row_stride < cols) {
    fail(op_, field, fmt::format("a row stride of at least {}", cols), fmt::format("{}", view.row_stride));
  }
  if (view.data == nullptr) fail(op_, field, "memory", "none");
  if (reinterpret_cast<std::uintptr_t>(view.data) % size_of(dtype) != 0) {
    fail(op_, field, fmt::format("an address divisible by {}", size_of(dtype)),
         fmt::format("{}", fmt::ptr(view.data)));
  }
}

void ViewChecks::at_least(std::string_view field, int value, int least) const {
  if (value < least) fail(op_, field, fmt::format("at least {}", least), fmt::format("{}", value));
}

void ViewChecks::equal(std::string_view field, int value, int expected) const {
  if (value != expected) fail(op_, field, fmt::format("{}", expected), fmt::format("{}", value));
}

void ViewChecks::apart(std::string_view field, const TensorView& a, const TensorView& b) const {
  if (views_overlap(a, b)) fail(op_, field, "views that share no memory", "an overlap");
}

void ViewChecks::apart_or_same(std::string_view field, const TensorView& a, const TensorView& b) const {
  if (!is_same_view(a, b) && views_overlap(a, b)) {
    fail(op_, field, "one view or views that share no memory", "a partial overlap");
  }
}

void check_cache(const ViewChecks& check, const KvLayerView& cache, int heads) {
  check.at_least("cache.kv_heads", cache.kv_heads, 1);
  check.at_least("cache.head_dim", cache.head_dim, 1);
  check.at_least("heads", heads, 1);
  check.equal("heads mod cache.kv_heads", heads % cache.kv_heads, 0);
  check.at_least("cache.page_count", cache.page_count, 0);
  check.require(cache.key_codes % 2 == 0 && cache.value_codes % 2 == 0, "cache codes", "even byte offsets",
                "an odd one");
  check.require(cache.key_scales % 4 == 0 && cache.value_scales % 4 == 0, "cache scales",
                "byte offsets divisible by 4", "another");
}

void check_rope(const ViewChecks& check, const RopeView& rope, std::string_view dim_field, int dim) {
  check.at_least("rope.rotary_dims", rope.rotary_dims, 0);
  check.equal("rope.rotary_dims mod 2", rope.rotary_dims % 2, 0);
  check.at_least(dim_field, dim, rope.rotary_dims);
  check.shape("rope.cos", rope.cos, DType::kF32, rope.cos.rows, rope.rotary_dims / 2);
  check.shape("rope.sin", rope.sin, DType::kF32, rope.cos.rows, rope.rotary_dims / 2);
}

}  // namespace mererun
