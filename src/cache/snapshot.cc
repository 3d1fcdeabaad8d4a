#include "cache/snapshot.h"

#include <utility>

#include "base/error.h"

namespace mererun {

std::string_view name_of(SnapshotClass kind) {
  switch (kind) {
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
  MERERUN_CHECK(state.length() == static_cast<int>(ids.size()), "the ids are what the state holds");
  return std::shared_ptr<const Snapshot>(new Snapshot(state.fork(), std::move(ids), std::move(logits), kind));
}

std::size_t Snapshot::exclusive_bytes() const {
  std::size_t bytes = state_.recurrent().bytes().size_bytes();
  bytes += static_cast<std::size_t>(state_.geometry().hidden) * sizeof(float);
  bytes += ids_.size() * sizeof(TokenId) + logits_.size() * sizeof(float);
  if (const auto& history = state_.history()) {
    bytes += static_cast<std::size_t>(history->waiting()) *
             (static_cast<std::size_t>(state_.geometry().hidden) * sizeof(float) + sizeof(TokenId));
  }
  return bytes;
}

std::vector<const KvPage*> Snapshot::pages() const {
  std::vector<const KvPage*> pages;
  for (const KvPageRef& page : state_.kv().share_pages()) pages.push_back(page.get());
  if (const auto& history = state_.history())
    for (const KvPageRef& page : history->cache().share_pages()) pages.push_back(page.get());
  return pages;
}

}  // namespace mererun
