#include "kernels/cpu/row_forms.h"

#include <algorithm>

namespace mererun::cpu {
namespace {

/// Elements that one thread codes faster than it wakes the others.
constexpr std::int64_t kSerialElements = 8192;
constexpr int kChunkGroups = 16;

}  // namespace

CodedRow coded_row(int r, int rows, int in, int group, int tile_rows) {
  const int tile_first = r / tile_rows * tile_rows;
  const int in_tile = std::min(tile_rows, rows - tile_first);
  const std::int64_t groups = in / group;
  return {static_cast<std::int64_t>(tile_first) * in + static_cast<std::int64_t>(r - tile_first) * group,
          static_cast<std::int64_t>(in_tile) * group, 2 * (tile_first * groups + (r - tile_first)),
          2 * in_tile};
}

int RowForms::slot_of(const PackedView& weight) {
  if (weight.format == WeightFormat::kDense) return 3;
  return weight.group == 32 ? 0 : weight.group == 64 ? 1 : 2;
}

const RowsView& RowForms::of(const PackedView& weight) const { return forms_[slot_of(weight)].view; }

void RowForms::build(const KernelTable& kernels, ThreadPool& pool, TensorView x,
                     std::span<const PackedView* const> weights, int tile_rows) {
  for (Form& f : forms_) f.live = false;
  const auto rows = static_cast<std::size_t>(x.rows);
  for (const PackedView* w : weights) {
    Form& f = forms_[slot_of(*w)];
    if (f.live) continue;
    f.live = true;
    f.view = RowsView{.rows = x.rows, .in = x.cols, .group = w->group};
    if (w->format == WeightFormat::kDense) {
      f.view.planar_stride = planar_length(x.cols);
      f.view.planar = f.codes.get<float>(rows * static_cast<std::size_t>(f.view.planar_stride));
    } else {
      f.view.codes = f.codes.get<std::int16_t>(rows * static_cast<std::size_t>(x.cols));
      f.view.scales = f.scales.get<float>(2 * rows * static_cast<std::size_t>(x.cols / w->group));
    }
  }
  for (Form& f : forms_) {
    if (!f.live) continue;
    const int in = x.cols;
    const int group = f.view.group;
    const bool serial = static_cast<std::int64_t>(x.rows) * in <= kSerialElements;
    if (f.view.planar != nullptr) {
      const auto convert = [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t r = begin; r < end; ++r) {
          kernels.planar_row(x.row<const float>(r), in,
                             const_cast<float*>(f.view.planar) + r * f.view.planar_stride);
        }
      };
      serial ? convert(0, x.rows, 0) : pool.parallel_for(x.rows, convert);
      continue;
    }
    const int groups = in / group;
    const int chunks = (groups + kChunkGroups - 1) / kChunkGroups;
    const auto convert = [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t item = begin; item < end; ++item) {
        const int r = static_cast<int>(item / chunks);
        const int g = static_cast<int>(item % chunks) * kChunkGroups;
        const int count = std::min(kChunkGroups, groups - g);
        const CodedRow at = coded_row(r, x.rows, in, group, tile_rows);
        kernels.quantise_row(
            x.row<const float>(r) + static_cast<std::int64_t>(g) * group, count * group, group,
            const_cast<std::int16_t*>(f.view.codes) + at.codes + g * at.code_stride, at.code_stride,
            const_cast<float*>(f.view.scales) + at.scales + g * at.scale_stride, at.scale_stride);
      }
    };
    const std::int64_t items = static_cast<std::int64_t>(x.rows) * chunks;
    serial ? convert(0, items, 0) : pool.parallel_for(items, convert);
  }
}

}  // namespace mererun::cpu
