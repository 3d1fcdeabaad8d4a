#include "cache/snapshot.h"

#include <utility>

#include "base/error.h"

namespace mererun {

std::string_view name_of(SnapshotClass kind) {
  switch (kind) {
    case SnapshotClass::kSystem:
    case SnapshotClass::kSemantic: return "semantic";
    case SnapshotClass::kPrompt: return "prompt";
    case SnapshotClass::kReply: return "reply";
    case SnapshotClass::kInterval: return "interval";
  }
  return "?";
}

Snapshot::Snapshot(SequenceState state, std::vector<TokenId> ids, std::vector<float> logits,
                   SnapshotClass kind)
    : state_(std::move(state)), ids_(std::move(ids)), logits_(std::move(logits)), kind_(kind) {}

std::shared_ptr<const Snapshot> Snapshot::capture(const SequenceState& state, std::vector<TokenId> ids,
                                                  std::vector<float> logits, SnapshotClass kind) {
  return adopt(state.fork(), std::move(ids), std::move(logits), kind);
}

std::shared_ptr<const Snapshot> Snapshot::adopt(SequenceState state, std::vector<TokenId> ids,
                                                std::vector<float> logits, SnapshotClass kind) {
  MERERUN_CHECK(!ids.empty() && state.length() == static_cast<int>(ids.size()),
                "the ids are what the state holds");
  return std::shared_ptr<const Snapshot>(
      new Snapshot(std::move(state), std::move(ids), std::move(logits), kind));
}

bool Snapshot::has_whole_history() const {
  const auto& history = state_.history();
  return history && history->base() == 0 && history->transitions() == length() - 1;
}

std::size_t Snapshot::exclusive_bytes() const {
  std::size_t bytes = state_.recurrent().bytes().size_bytes();
  bytes += static_cast<std::size_t>(state_.geometry().hidden) * sizeof(float);
  bytes += state_.context().size() * sizeof(TokenId);
  bytes += ids_.size() * sizeof(TokenId) + logits_.size() * sizeof(float);
  bytes += state_.kv().table_bytes();
  if (const auto& history = state_.history()) {
    bytes += history->row_bytes() + history->waiting_tokens().size() * sizeof(TokenId);
    bytes += history->cache().table_bytes();
  }
  return bytes;
}

std::vector<KvPageRef> Snapshot::pages() const {
  std::vector<KvPageRef> pages = state_.kv().share_pages();
  if (const auto& history = state_.history()) {
    const std::vector<KvPageRef> head = history->cache().share_pages();
    pages.insert(pages.end(), head.begin(), head.end());
  }
  return pages;
}

}  // namespace mererun
