#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "cache/sequence_state.h"

namespace mererun {

/// Why a snapshot was taken; eviction goes from the last to the first.
enum class SnapshotClass {
  kSystem,    // end of the tools and system part; reports call it semantic too
  kSemantic,  // end of a message
  kPrompt,    // end of a prompt, with its logits
  kReply,     // committed end of a generation
  kInterval,  // inside a prompt: aligned positions, ends of earlier messages
};
/// "semantic", "prompt", "reply" or "interval".
std::string_view name_of(SnapshotClass kind);

/// Everything a sequence of L tokens needs to go on: KV pages (shared), recurrent states (copied), draft
/// history with its waiting transitions, last hidden row, and the logits of the last position where they were
/// known.
///
/// One immutable unit: reading forks, nothing mutates it, no part depends on a token after L.
/// Thread-safety: immutable; reading its parts through the Ops is for the thread that owns them.
class Snapshot {
 public:
  /// Copies `state`, which holds exactly `ids`. `logits` [V] or empty.
  /// Errors: kOutOfMemory; kInternal for an invalid state.
  static std::shared_ptr<const Snapshot> capture(const SequenceState& state, std::vector<TokenId> ids,
                                                 std::vector<float> logits, SnapshotClass kind);
  /// Takes over a state that was put together from stored parts.
  static std::shared_ptr<const Snapshot> adopt(SequenceState state, std::vector<TokenId> ids,
                                               std::vector<float> logits, SnapshotClass kind);

  /// A mutable sequence that continues here. Errors: kOutOfMemory.
  SequenceState restore() const { return state_.fork(); }

  int length() const { return static_cast<int>(ids_.size()); }
  std::span<const TokenId> ids() const { return ids_; }
  std::span<const float> logits() const { return logits_; }
  SnapshotClass kind() const { return kind_; }
  const SequenceState& state() const { return state_; }

  /// True if it holds every draft transition of its tokens, evaluated or waiting.
  bool has_whole_history() const;

  /// Bytes only this snapshot holds; pages are counted by whoever shares them. The formula of
  /// docs/prefix-cache.md.
  std::size_t exclusive_bytes() const;
  /// The pages it refers to, trunk then head.
  std::vector<KvPageRef> pages() const;

 private:
  Snapshot(SequenceState state, std::vector<TokenId> ids, std::vector<float> logits, SnapshotClass kind);

  SequenceState state_;
  std::vector<TokenId> ids_;
  std::vector<float> logits_;
  SnapshotClass kind_;
};

}  // namespace mererun
