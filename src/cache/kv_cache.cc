#include "cache/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mererun {
namespace {
int pages_for(int positions) { return (positions + kKvPagePositions - 1) / kKvPagePositions; }
}  // namespace

KvCache::KvCache(std::shared_ptr<KvPagePool> pool) : pool_(std::move(pool)) {}

KvCache::KvCache(std::shared_ptr<KvPagePool> pool, std::vector<KvPageRef> pages, int length)
    : pool_(std::move(pool)), pages_(std::move(pages)), length_(length) {
  MERERUN_CHECK(static_cast<int>(pages_.size()) == pages_for(length), "pages cover the length exactly");
  upload_table();
}

KvCache KvCache::fork() const { return KvCache(pool_, share_pages(), length_); }

void KvCache::reserve(int rows) {
  if (rows <= 0) return;
  const int first = length_ / kKvPagePositions;  // the page that holds position length_
  const int last = pages_for(length_ + rows);
  bool changed = false;
  for (int i = first; i < last; ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (index >= pages_.size()) {
      pages_.push_back(pool_->acquire());
      changed = true;
    } else if (pages_[index].use_count() > 1) {
      pages_[index] = pool_->acquire_copy(*pages_[index]);
      changed = true;
    }
  }
  if (changed) upload_table();
}

void KvCache::set_length(int length) {
  MERERUN_CHECK(length >= 0 && pages_for(length) <= static_cast<int>(pages_.size()),
                "length inside reserved pages");
  length_ = length;
}

KvLayerView KvCache::layer(int index) const {
  const KvGeometry& g = geometry();
  MERERUN_CHECK(index >= 0 && index < g.layers, "layer inside the cache");
  const std::size_t base = g.layer_bytes() * static_cast<std::size_t>(index);
  KvLayerView view;
  view.pages = table_.as<std::byte*>();
  view.page_count = static_cast<int>(pages_.size());
  view.key_codes = base;
  view.value_codes = base + g.codes_bytes();
  view.key_scales = base + 2 * g.codes_bytes();
  view.value_scales = view.key_scales + g.scales_bytes();
  view.kv_heads = g.kv_heads;
  view.head_dim = g.head_dim;
  return view;
}

std::vector<KvPageRef> KvCache::share_pages() const {
  return {pages_.begin(), pages_.begin() + pages_for(length_)};
}

void KvCache::upload_table() {
  const std::size_t bytes = pages_.size() * sizeof(std::byte*);
  if (bytes > table_.size_bytes()) table_ = pool_->ops().allocate(std::max<std::size_t>(2 * bytes, 512));
  if (bytes == 0) return;
  std::vector<std::byte*> addresses;
  addresses.reserve(pages_.size());
  for (const KvPageRef& page : pages_) addresses.push_back(page->bytes.as<std::byte>());
  pool_->ops().upload(table_.data(), addresses.data(), bytes);
}

}  // namespace mererun
