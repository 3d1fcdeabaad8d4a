#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "device/buffer.h"
#include "kernels/attention.h"
#include "kernels/ops.h"

namespace mererun {

/// Shape of the pages of one KV cache: every page holds kKvPagePositions positions of all layers.
struct KvGeometry {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int index_dim = 0;  // of index keys; 0: none

  std::size_t codes_bytes() const;   // one layer's keys (or values) in a page
  std::size_t scales_bytes() const;  // one layer's key (or value) scales in a page
  std::size_t index_codes_bytes() const;
  std::size_t index_scales_bytes() const;
  std::size_t index_pooled_bytes() const;
  std::size_t layer_bytes() const {
    return 2 * (codes_bytes() + scales_bytes()) + index_codes_bytes() + index_scales_bytes() +
           index_pooled_bytes();
  }
  std::size_t page_bytes() const { return layer_bytes() * static_cast<std::size_t>(layers); }
  /// Where the arrays of a layer lie in a page; the view has no pages.
  KvLayerView layer(int index) const;
  bool operator==(const KvGeometry&) const = default;
};

/// kKvPagePositions positions of keys and values. Shared by reference between sequences and snapshots;
/// written only by a cache that holds the single reference.
struct KvPage {
  Buffer bytes;
};

using KvPageRef = std::shared_ptr<KvPage>;

/// Hands out zeroed pages and takes them back when their last reference goes.
///
/// Thread-safety: thread-safe for release; acquire is called by the thread that owns the Ops.
class KvPagePool : public std::enable_shared_from_this<KvPagePool> {
 public:
  /// `ops` must outlive every page.
  static std::shared_ptr<KvPagePool> create(Ops& ops, const KvGeometry& geometry);

  const KvGeometry& geometry() const { return geometry_; }
  Ops& ops() const { return ops_; }

  /// A page of zeros: dead positions are finite. Errors: kOutOfMemory.
  KvPageRef acquire();
  /// A writable page with the content of `source`.
  KvPageRef acquire_copy(const KvPage& source);

  std::size_t live_pages() const;
  std::size_t free_pages() const;
  /// Gives the memory of unused pages back to the device.
  void trim();

 private:
  KvPagePool(Ops& ops, const KvGeometry& geometry) : ops_(ops), geometry_(geometry) {}
  KvPageRef wrap(Buffer bytes);
  Buffer take_free();

  Ops& ops_;
  KvGeometry geometry_;
  mutable std::mutex mutex_;
  std::vector<Buffer> free_;
  std::size_t live_ = 0;
};

}  // namespace mererun
