#include "kernels/cpu/packed_weight.h"

#include <sys/mman.h>

#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/cpu/pack_affine.h"

namespace mererun::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// What both layouts have.
PackedView panels_of(const LinearSource& source) {
  return {.format = source.format,
          .dtype = source.dtype,
          .experts = source.experts,
          .out = source.out,
          .in = source.in,
          .panels = (source.out + kPanelRows - 1) / kPanelRows};
}

PackedView affine_layout(const LinearSource& source) {
  PackedView v = panels_of(source);
  v.bits = source.bits;
  v.group = source.group;
  v.groups = source.in / source.group;
  v.record_bytes = static_cast<std::size_t>(source.group / kUnitCodes * source.bits) * 64 +
                   2 * kPanelRows * size_of(source.dtype);
  v.panel_bytes = static_cast<std::size_t>(v.groups) * v.record_bytes;
  return v;
}

PackedView dense_layout(const LinearSource& source) {
  PackedView v = panels_of(source);
  v.planar = source.dtype != DType::kBF16;
  const int length = v.planar ? planar_length(source.in) : source.in;
  v.row_bytes = static_cast<std::size_t>(length) * size_of(source.dtype);
  v.expert_bytes =
      static_cast<std::size_t>(v.planar ? source.out : source.rows_between_experts()) * v.row_bytes;
  return v;
}

PackedView layout_of(const LinearSource& source) {
  return source.format == WeightFormat::kAffine ? affine_layout(source) : dense_layout(source);
}

bool stays_in_place(const PackedView& v) { return v.format == WeightFormat::kDense && !v.planar; }

std::size_t packed_expert_bytes(const PackedView& v) {
  return v.format == WeightFormat::kAffine ? static_cast<std::size_t>(v.panels) * v.panel_bytes
                                           : v.expert_bytes;
}

/// One stored row as [in / 64][32 even, 32 odd]; `out` is zeroed.
void pack_planar_row(const std::byte* row, int in, std::size_t element, std::byte* out) {
  for (int i = 0; i < in; ++i) {
    const int block = i / kDenseBlock * kDenseBlock;
    const int at = block + (i - block) / 2 + (i % 2) * kDenseBlock / 2;
    std::memcpy(out + static_cast<std::size_t>(at) * element, row + static_cast<std::size_t>(i) * element,
                element);
  }
}

}  // namespace

Buffer allocate_pages(std::size_t bytes) {
  if (bytes < 2 * kHugePage) return allocate_host(bytes);
  // One huge page more than needed, so that the block can start at a huge page's boundary.
  const std::size_t mapped = (bytes + 2 * kHugePage - 1) / kHugePage * kHugePage;
  void* base =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    fail_expected(ErrorCode::kOutOfMemory, "host memory", std::to_string(bytes) + " bytes", "none");
  }
  ::madvise(base, mapped, MADV_HUGEPAGE);  // a hint: the kernel may decline
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  auto* aligned = reinterpret_cast<void*>((address + kHugePage - 1) / kHugePage * kHugePage);
  return Buffer(aligned, bytes, [base, mapped](void*) { ::munmap(base, mapped); });
}

std::size_t packed_bytes(const LinearSource& source) {
  const PackedView v = layout_of(source);
  return stays_in_place(v) ? 0 : static_cast<std::size_t>(source.experts) * packed_expert_bytes(v);
}

PackedWeight::PackedWeight(const LinearSource& source, ThreadPool& pool, const OnConverted& on_converted)
    : LinearWeight(source.experts, source.out, source.in) {
  const bool affine = source.format == WeightFormat::kAffine;
  view_ = layout_of(source);
  if (stays_in_place(view_)) {
    view_.data = static_cast<const std::byte*>(source.weight);
    return;
  }
  const std::size_t expert_bytes = packed_expert_bytes(view_);
  memory_ = allocate_pages(static_cast<std::size_t>(source.experts) * expert_bytes);
  auto* data = memory_.as<std::byte>();
  view_.data = data;
  pool.parallel_for(static_cast<std::int64_t>(source.experts) * view_.panels, [&](std::int64_t begin,
                                                                                  std::int64_t end, int) {
    for (std::int64_t item = begin; item < end; ++item) {
      const int expert = static_cast<int>(item / view_.panels);
      const int panel = static_cast<int>(item % view_.panels);
      std::byte* out = data + static_cast<std::size_t>(expert) * expert_bytes;
      if (affine) {
        pack_affine_panel(source, view_, expert, panel,
                          out + static_cast<std::size_t>(panel) * view_.panel_bytes);
        continue;
      }
      for (int r = panel * kPanelRows; r < panel * kPanelRows + view_.panel_rows(panel); ++r) {
        const std::int64_t row = expert * source.rows_between_experts() + r;
        pack_planar_row(static_cast<const std::byte*>(source.weight) + row * source.weight_row_bytes(),
                        source.in, size_of(source.dtype),
                        out + static_cast<std::size_t>(r) * view_.row_bytes);
      }
    }
  });
  tell_converted(on_converted, source);
}

}  // namespace mererun::cpu
