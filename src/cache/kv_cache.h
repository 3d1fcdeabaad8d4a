#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cache/kv_page_pool.h"
#include "device/buffer.h"

namespace mererun {

/// Keys and values of a stack of attention layers, by position. Layers append past `length`; only a commit
/// moves it.
///
/// Pages are shared on copy and copied on first write, so a fork costs no memory until it diverges.
/// Thread-safety: one thread at a time.
class KvCache {
 public:
  explicit KvCache(std::shared_ptr<KvPagePool> pool);
  /// A cache of `length` positions over shared pages (a snapshot's). Needs ceil(length / 256) pages.
  KvCache(std::shared_ptr<KvPagePool> pool, std::vector<KvPageRef> pages, int length);

  KvCache(KvCache&&) noexcept = default;
  KvCache& operator=(KvCache&&) noexcept = default;
  /// A cache of the same positions that shares every page until one of the two writes.
  KvCache fork() const;

  int length() const { return length_; }
  const KvGeometry& geometry() const { return pool_->geometry(); }
  const std::shared_ptr<KvPagePool>& pool() const { return pool_; }

  /// Makes positions [length, length + rows) writable: adds pages, and copies a page that someone else refers
  /// to. Errors: kOutOfMemory; the cache is as it was then.
  void reserve(int rows);
  /// Moves the committed length to `length`, at most what is reserved. Positions beyond it are dead.
  void set_length(int length);

  /// Views for the ops; valid from one reserve to the next.
  KvLayerView layer(int index) const;

  /// References to the pages that hold [0, length).
  std::vector<KvPageRef> share_pages() const;
  /// Bytes of the page table; a fork has none before its first reserve.
  std::size_t table_bytes() const { return table_.size_bytes(); }

 private:
  void upload_table();

  std::shared_ptr<KvPagePool> pool_;
  std::vector<KvPageRef> pages_;
  Buffer table_;                // page addresses in memory the backend reads
  bool table_is_stale_ = true;  // pages changed since the last upload
  int length_ = 0;
};

}  // namespace mererun
