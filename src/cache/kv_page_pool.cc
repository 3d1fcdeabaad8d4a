#include "cache/kv_page_pool.h"

#include <utility>

namespace mererun {
namespace {
constexpr std::size_t kPositions = kKvPagePositions;
}

std::size_t KvGeometry::codes_bytes() const {
  return static_cast<std::size_t>(kv_heads) * kPositions * static_cast<std::size_t>(head_dim) *
         sizeof(std::int16_t);
}

std::size_t KvGeometry::scales_bytes() const {
  return static_cast<std::size_t>(kv_heads) * kPositions * sizeof(float);
}

std::size_t KvGeometry::index_codes_bytes() const {
  return kPositions * static_cast<std::size_t>(index_dim) * sizeof(std::int16_t);
}

std::size_t KvGeometry::index_scales_bytes() const { return index_dim > 0 ? kPositions * sizeof(float) : 0; }

std::size_t KvGeometry::index_pooled_bytes() const {
  return static_cast<std::size_t>(kIndexPageBlocks) * static_cast<std::size_t>(index_dim) * sizeof(float);
}

KvLayerView KvGeometry::layer(int index) const {
  KvLayerView view;
  view.key_codes = layer_bytes() * static_cast<std::size_t>(index);
  view.value_codes = view.key_codes + codes_bytes();
  view.key_scales = view.value_codes + codes_bytes();
  view.value_scales = view.key_scales + scales_bytes();
  view.kv_heads = kv_heads;
  view.head_dim = head_dim;
  view.index_codes = view.value_scales + scales_bytes();
  view.index_scales = view.index_codes + index_codes_bytes();
  view.index_pooled = view.index_scales + index_scales_bytes();
  view.index_dim = index_dim;
  return view;
}

std::shared_ptr<KvPagePool> KvPagePool::create(Ops& ops, const KvGeometry& geometry) {
  return std::shared_ptr<KvPagePool>(new KvPagePool(ops, geometry));
}

Buffer KvPagePool::take_free() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return {};
  Buffer bytes = std::move(free_.back());
  free_.pop_back();
  return bytes;
}

KvPageRef KvPagePool::wrap(Buffer bytes) {
  {
    const std::lock_guard lock(mutex_);
    ++live_;
  }
  // The deleter keeps the pool alive: a snapshot may outlast every sequence.
  return KvPageRef(new KvPage{std::move(bytes)}, [pool = shared_from_this()](KvPage* page) {
    {
      const std::lock_guard lock(pool->mutex_);
      --pool->live_;
      pool->free_.push_back(std::move(page->bytes));
    }
    delete page;
  });
}

KvPageRef KvPagePool::acquire() {
  Buffer bytes = take_free();
  if (bytes) {
    ops_.zero(bytes.data(), bytes.size_bytes());
  } else {
    bytes = ops_.allocate(geometry_.page_bytes());
  }
  return wrap(std::move(bytes));
}

KvPageRef KvPagePool::acquire_copy(const KvPage& source) {
  Buffer bytes = take_free();
  if (!bytes) bytes = ops_.allocate(geometry_.page_bytes());
  ops_.copy(bytes.data(), source.bytes.data(), geometry_.page_bytes());
  return wrap(std::move(bytes));
}

std::size_t KvPagePool::live_pages() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

std::size_t KvPagePool::free_pages() const {
  const std::lock_guard lock(mutex_);
  return free_.size();
}

void KvPagePool::trim() {
  std::vector<Buffer> released;
  const std::lock_guard lock(mutex_);
  released.swap(free_);
}

}  // namespace mererun
