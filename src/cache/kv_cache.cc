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
}

KvCache KvCache::fork() const { return KvCache(pool_, share_pages(), length_); }

void KvCache::reserve(int rows) {
  if (rows <= 0) return;
  const auto first = static_cast<std::size_t>(length_ / kKvPagePositions);  // the page of position length_
  const auto last = static_cast<std::size_t>(pages_for(length_ + rows));
  // What may fail comes first: a refusal halfway leaves pages and table in agreement.
  std::vector<std::pair<std::size_t, KvPageRef>> fresh;
  for (std::size_t i = first; i < last; ++i) {
    if (i >= pages_.size()) {
      fresh.emplace_back(i, pool_->acquire());
    } else if (pages_[i].use_count() > 1) {
      fresh.emplace_back(i, pool_->acquire_copy(*pages_[i]));
    }
  }
  if (fresh.empty() && !table_is_stale_) return;
  const std::size_t bytes = std::max(last, pages_.size()) * sizeof(std::byte*);
  if (bytes > table_.size_bytes()) {
    Buffer table = pool_->ops().allocate(std::max<std::size_t>(2 * bytes, 512));
    table_ = std::move(table);
  }
  for (auto& [index, page] : fresh) {
    if (index < pages_.size()) {
      pages_[index] = std::move(page);
    } else {
      pages_.push_back(std::move(page));
    }
  }
  upload_table();
}

void KvCache::set_length(int length) {
  MERERUN_CHECK(length >= 0 && pages_for(length) <= static_cast<int>(pages_.size()),
                "length inside reserved pages");
  length_ = length;
}

KvLayerView KvCache::layer(int index) const {
  MERERUN_CHECK(index >= 0 && index < geometry().layers, "layer inside the cache");
  KvLayerView view = geometry().layer(index);
  view.pages = table_.as<std::byte*>();
  view.page_count = static_cast<int>(pages_.size());
  return view;
}

std::vector<KvPageRef> KvCache::share_pages() const {
  return {pages_.begin(), pages_.begin() + pages_for(length_)};
}

void KvCache::upload_table() {
  table_is_stale_ = true;
  std::vector<std::byte*> addresses;
  addresses.reserve(pages_.size());
  for (const KvPageRef& page : pages_) addresses.push_back(page->bytes.as<std::byte>());
  pool_->ops().upload(table_.data(), addresses.data(), addresses.size() * sizeof(std::byte*));
  table_is_stale_ = false;
}

}  // namespace mererun
