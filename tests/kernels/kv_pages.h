#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/kernels/op_data.h"

namespace mererun {

/// KV pages of one layer in a backend's memory, not one behind the other.
class KvPages {
 public:
  KvPages(Ops& ops, int page_count, int kv_heads, int head_dim, int index_dim = 0) : ops_(&ops) {
    const auto vectors = static_cast<std::size_t>(kv_heads) * kKvPagePositions;
    const std::size_t codes = vectors * static_cast<std::size_t>(head_dim) * 2;
    const std::size_t scales = vectors * 4;
    view_ = {.pages = nullptr,
             .page_count = page_count,
             .key_codes = 0,
             .key_scales = codes,
             .value_codes = codes + scales,
             .value_scales = 2 * codes + scales,
             .kv_heads = kv_heads,
             .head_dim = head_dim};
    page_bytes_ = 2 * (codes + scales);
    if (index_dim > 0) {
      const auto dims = static_cast<std::size_t>(index_dim);
      view_.index_dim = index_dim;
      view_.index_codes = page_bytes_;
      view_.index_scales = view_.index_codes + 2 * kKvPagePositions * dims;
      view_.index_pooled = view_.index_scales + 4 * kKvPagePositions;
      page_bytes_ = view_.index_pooled + 4 * kIndexPageBlocks * dims;
    }
    addresses_.resize(static_cast<std::size_t>(page_count));
    for (std::size_t i = addresses_.size(); i-- > 0;) {  // last page first
      pages_.push_back(ops.allocate(page_bytes_ + 64 * i));
      addresses_[i] = pages_.back().as<std::byte>();
    }
    const std::size_t bytes = addresses_.size() * sizeof(std::byte*);
    table_ = ops.allocate(bytes);
    ops.upload(table_.data(), addresses_.data(), bytes);
    view_.pages = table_.as<std::byte*>();
  }

  const KvLayerView& view() const { return view_; }

  /// What they hold, page after page.
  std::vector<unsigned char> bytes() const {
    std::vector<unsigned char> all(page_bytes_ * addresses_.size());
    ops_->synchronize();
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      ops_->download(all.data() + i * page_bytes_, addresses_[i], page_bytes_);
    }
    return all;
  }

  struct Vector {
    std::vector<std::int16_t> codes;
    float scale;
    double value(int d) const { return static_cast<double>(codes[static_cast<std::size_t>(d)]) * scale; }
  };
  Vector key(int head, int position) const { return read(view_.key_codes, view_.key_scales, head, position); }
  Vector value(int head, int position) const {
    return read(view_.value_codes, view_.value_scales, head, position);
  }
  void set_key(int head, int position, const Vector& x) {
    write(view_.key_codes, view_.key_scales, head, position, x);
  }
  void set_value(int head, int position, const Vector& x) {
    write(view_.value_codes, view_.value_scales, head, position, x);
  }

 private:
  struct Place {
    std::byte* codes;
    std::byte* scale;
  };
  Place place(std::size_t codes, std::size_t scales, int head, int position) const {
    std::byte* page = addresses_[static_cast<std::size_t>(position / kKvPagePositions)];
    const auto slot = static_cast<std::size_t>(head * kKvPagePositions + position % kKvPagePositions);
    return {page + codes + slot * static_cast<std::size_t>(view_.head_dim) * 2, page + scales + slot * 4};
  }
  Vector read(std::size_t codes, std::size_t scales, int head, int position) const {
    const Place at = place(codes, scales, head, position);
    Vector x{std::vector<std::int16_t>(static_cast<std::size_t>(view_.head_dim)), 0};
    ops_->synchronize();
    ops_->download(x.codes.data(), at.codes, x.codes.size() * 2);
    ops_->download(&x.scale, at.scale, 4);
    return x;
  }
  void write(std::size_t codes, std::size_t scales, int head, int position, const Vector& x) {
    const Place at = place(codes, scales, head, position);
    ops_->upload(at.codes, x.codes.data(), x.codes.size() * 2);
    ops_->upload(at.scale, &x.scale, 4);
  }

  Ops* ops_;
  KvLayerView view_;
  std::size_t page_bytes_ = 0;
  std::vector<Buffer> pages_;
  std::vector<std::byte*> addresses_;
  Buffer table_;
};

}  // namespace mererun
