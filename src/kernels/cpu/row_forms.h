#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/scratch.h"

namespace mererun::cpu {

/// One pass's activation rows in every form its weights read: coded once per distinct group size, and planar
/// for dense weights.
class RowForms {
 public:
  /// `tile_rows` of the coded layout: kTileRows for the product kernels, 1 for rows that are gathered later.
  void build(const KernelTable& kernels, ThreadPool& pool, TensorView x,
             std::span<const PackedView* const> weights, int tile_rows = kTileRows);

  /// The form that `weight` reads. Precondition: built for it.
  const RowsView& of(const PackedView& weight) const;

 private:
  struct Form {
    bool live = false;
    RowsView view;
    Scratch codes, scales;
  };
  static int slot_of(const PackedView& weight);

  Form forms_[4];  // groups 32, 64, 128; planar
};

/// The coded layout of `rows` rows whose first is at `first`: where row r's codes and scales start and how
/// far apart its groups are.
struct CodedRow {
  std::int64_t codes, code_stride, scales, scale_stride;
};
CodedRow coded_row(int r, int rows, int in, int group, int tile_rows);

}  // namespace mererun::cpu
