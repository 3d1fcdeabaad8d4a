#include "cache/sequence_state.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mererun {

KvGeometry trunk_kv_geometry(const StateGeometry& g) {
  return {g.attention_layers, g.kv_heads, g.head_dim, g.index_dim};
}

KvGeometry head_kv_geometry(const StateGeometry& g) { return {1, g.kv_heads, g.head_dim, g.index_dim}; }

StatePools StatePools::create(Ops& ops, const StateGeometry& g) {
  StatePools pools;
  pools.trunk = KvPagePool::create(ops, trunk_kv_geometry(g));
  if (g.draft_head) pools.head = KvPagePool::create(ops, head_kv_geometry(g));
  return pools;
}

SequenceState::SequenceState(Ops& ops, const StateGeometry& geometry, const StatePools& pools)
    : ops_(&ops),
      geometry_(geometry),
      pools_(pools),
      kv_(pools.trunk),
      recurrent_(ops, geometry),
      last_hidden_(ops.allocate(static_cast<std::size_t>(geometry.hidden) * sizeof(float))),
      context_(static_cast<std::size_t>(geometry.context_tokens), geometry.context_fill) {
  if (geometry.draft_head) history_.emplace(ops, pools.head, geometry.hidden);
}

SequenceState SequenceState::assemble(Ops& ops, const StateGeometry& geometry, const StatePools& pools,
                                      KvCache kv, std::span<const TokenId> ids,
                                      std::span<const std::byte> recurrent,
                                      std::span<const std::byte> last_hidden,
                                      std::optional<DraftHistory> history) {
  SequenceState state(ops, geometry, pools);
  MERERUN_CHECK(recurrent.size() == state.recurrent_.bytes().size_bytes() &&
                    last_hidden.size() == state.last_hidden_.size_bytes(),
                "the parts fit the geometry");
  state.kv_ = std::move(kv);
  state.push_context(ids);
  ops.upload(state.recurrent_.bytes().data(), recurrent.data(), recurrent.size());
  ops.upload(state.last_hidden_.data(), last_hidden.data(), last_hidden.size());
  if (!state.history_) return state;
  if (history) {
    state.history_ = std::move(history);
  } else {
    state.history_->restart_at(state.length() - 1);
  }
  return state;
}

SequenceState SequenceState::fork() const {
  require_valid();
  SequenceState copy(*ops_, geometry_, pools_);
  copy.kv_ = kv_.fork();
  copy.recurrent_.copy_from(recurrent_);
  if (history_) copy.history_ = history_->fork();
  copy.context_ = context_;
  ops_->copy(copy.last_hidden_.data(), last_hidden_.data(), last_hidden_.size_bytes());
  return copy;
}

void SequenceState::push_context(std::span<const TokenId> ids) {
  if (context_.empty()) return;
  const std::size_t kept = std::min(ids.size(), context_.size());
  context_.erase(context_.begin(), context_.begin() + static_cast<std::ptrdiff_t>(kept));
  context_.insert(context_.end(), ids.end() - static_cast<std::ptrdiff_t>(kept), ids.end());
}

TensorView SequenceState::last_hidden() const {
  return make_view(last_hidden_.data(), DType::kF32, 1, geometry_.hidden);
}

void SequenceState::require_valid() const {
  if (!valid_) {
    throw Error(
        ErrorCode::kInternal,
        "sequence state: expected a state that every layer agrees on, got one whose last pass failed midway");
  }
}

}  // namespace mererun
