#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/tensor_entry.h"
#include "model/draft_vocabulary.h"

namespace mererun {

/// A matrix or a stack of matrices inside stored float tensors, however they hold it: element (e, r, c) is
/// element `base + e * expert_stride + r * row_stride + c * column_stride` of the tensor, or of tensor e
/// where every expert has its own.
struct SourceRows {
  std::vector<const TensorEntry*> tensors;  // one, or one an expert; they outlive this
  std::int64_t experts = 1;
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::int64_t base = 0;
  std::int64_t expert_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;
  std::optional<DraftVocabulary> chosen;  // row r is then row chosen.source_row(r) of the tensor

  std::int64_t rows() const { return experts * out; }
  std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(rows() * in) * size_of(tensors.front()->dtype);
  }

  /// Writes rows [first, first + count) of all experts' rows as f32, [count, in].
  /// Errors: kCorruptData for NaN or infinity, naming the tensor, the element and the file.
  void read(std::int64_t first, std::int64_t count, std::span<float> values) const;
  /// Tells the mappings that these rows, and whatever lies between them, are not read again soon.
  void drop(std::int64_t first, std::int64_t count) const;

 private:
  struct Place {
    const TensorEntry* tensor;
    std::int64_t first;  // element of the tensor: column 0 of the row
  };
  Place place_of(std::int64_t row) const;
  void read_row(std::int64_t row, float* values) const;
};

/// A whole tensor as rows of its last axis; a vector is one row.
SourceRows rows_of(const TensorEntry& tensor);

}  // namespace mererun
