#pragma once

#include <string_view>

#include "kernels/attention.h"
#include "tensor/tensor_view.h"

namespace mererun {

/// Checks of one op's views; each throws kInvalidArgument with "<op> <field>" as the place.
class ViewChecks {
 public:
  explicit ViewChecks(std::string_view op) : op_(op) {}

  /// Fails unless the statement holds.
  void require(bool holds, std::string_view field, std::string_view expected, std::string_view got) const;
  /// dtype, [rows, cols], stride, alignment, and memory unless there is none to hold.
  void shape(std::string_view field, const TensorView& view, DType dtype, int rows, int cols) const;
  void at_least(std::string_view field, int value, int least) const;
  void equal(std::string_view field, int value, int expected) const;
  /// The two share no element.
  void apart(std::string_view field, const TensorView& a, const TensorView& b) const;
  /// The two are one view or share no element.
  void apart_or_same(std::string_view field, const TensorView& a, const TensorView& b) const;

 private:
  std::string_view op_;
};

/// Heads, pages and byte offsets of the keys and values that `heads` query heads read.
void check_cache(const ViewChecks& check, const KvLayerView& cache, int heads);
/// Tables of rotations that fit vectors of `dim` values, named `dim_field`.
void check_rope(const ViewChecks& check, const RopeView& rope, std::string_view dim_field, int dim);

/// True if two views share an element. Column ranges of one buffer are apart.
bool views_overlap(const TensorView& a, const TensorView& b);

}  // namespace mererun
