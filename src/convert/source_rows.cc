#include "convert/source_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "checkpoint/mapped_file.h"
#include "tensor/element.h"

namespace mererun {
namespace {

/// The common case, as a loop that becomes vector code.
void read_bf16(const std::byte* data, std::int64_t count, float* values) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, data + i * 2, sizeof(bits));
    values[i] = bf16_to_f32(bits);
  }
}

}  // namespace

SourceRows rows_of(const TensorEntry& tensor) {
  SourceRows rows;
  rows.tensors = {&tensor};
  rows.in = tensor.shape.empty() ? 1 : tensor.shape.back();
  rows.out = rows.in == 0 ? 0 : static_cast<std::int64_t>(tensor.num_elements()) / rows.in;
  rows.row_stride = rows.in;
  return rows;
}

SourceRows::Place SourceRows::place_of(std::int64_t row) const {
  const std::int64_t expert = row / out;
  std::int64_t inner = row % out;
  if (chosen) inner = chosen->source_row(static_cast<int>(inner));
  const bool is_own = tensors.size() > 1;
  return {.tensor = tensors[is_own ? static_cast<std::size_t>(expert) : 0],
          .first = base + (is_own ? 0 : expert * expert_stride) + inner * row_stride};
}

void SourceRows::read_row(std::int64_t row, float* values) const {
  const auto [entry, first] = place_of(row);
  const TensorEntry& tensor = *entry;
  if (tensor.dtype == DType::kBF16 && column_stride == 1) {
    read_bf16(tensor.data + first * 2, in, values);
  } else {
    for (std::int64_t c = 0; c < in; ++c)
      values[c] = element_f32(tensor.dtype, tensor.data, first + c * column_stride);
  }
  const std::int64_t at =
      std::find_if(values, values + in, [](float v) { return !std::isfinite(v); }) - values;
  if (at == in) return;
  throw Error(
      ErrorCode::kCorruptData,
      fmt::format("{}: expected finite numbers, got NaN or infinity at element {} in {}", tensor.stored_name,
                  first + at * column_stride, tensor.file->path().filename().string()));
}

void SourceRows::read(std::int64_t first, std::int64_t count, std::span<float> values) const {
  for (std::int64_t r = 0; r < count; ++r) read_row(first + r, values.data() + r * in);
}

void SourceRows::drop(std::int64_t first, std::int64_t count) const {
  // One range a tensor, as far as its rows reach: transposed and chosen rows touch pages all over it.
  Place begin{.tensor = nullptr, .first = 0};
  std::int64_t end = 0;
  const auto drop_range = [&] {
    if (begin.tensor == nullptr || begin.tensor->file == nullptr) return;
    const auto size = static_cast<std::int64_t>(size_of(begin.tensor->dtype));
    begin.tensor->file->drop_pages(begin.tensor->data + begin.first * size,
                                   static_cast<std::uint64_t>((end - begin.first) * size));
  };
  for (std::int64_t r = first; r < first + count; ++r) {
    const Place row = place_of(r);
    const std::int64_t row_end = row.first + (in - 1) * column_stride + 1;
    if (row.tensor != begin.tensor) {
      drop_range();
      begin = row;
      end = row_end;
    } else {
      begin.first = std::min(begin.first, row.first);
      end = std::max(end, row_end);
    }
  }
  drop_range();
}

}  // namespace mererun
