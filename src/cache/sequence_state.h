#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/draft_history.h"
#include "cache/kv_cache.h"
#include "cache/recurrent_state.h"
#include "cache/state_geometry.h"

namespace mererun {

/// Pages of the trunk's layers, and of the draft head's one layer.
KvGeometry trunk_kv_geometry(const StateGeometry& geometry);
KvGeometry head_kv_geometry(const StateGeometry& geometry);

/// The page pools of one loaded model: trunk and draft head.
struct StatePools {
  std::shared_ptr<KvPagePool> trunk;
  std::shared_ptr<KvPagePool> head;  // null without a draft head

  static StatePools create(Ops& ops, const StateGeometry& geometry);
};

/// All caches of one sequence at one position: target KV, delta states and conv windows, draft history, the
/// hidden row of the last committed position, and the last token ids where n-grams need them.
///
/// Thread-safety: one thread at a time.
class SequenceState {
 public:
  /// Position 0.
  SequenceState(Ops& ops, const StateGeometry& geometry, const StatePools& pools);
  SequenceState(SequenceState&&) noexcept = default;
  SequenceState& operator=(SequenceState&&) noexcept = default;

  /// From stored parts: the bytes of a recurrent state and of the last hidden row, on the host, and the ids
  /// of all positions. Without a history, one that starts at the next transition where the geometry has a
  /// head.
  static SequenceState assemble(Ops& ops, const StateGeometry& geometry, const StatePools& pools, KvCache kv,
                                std::span<const TokenId> ids, std::span<const std::byte> recurrent,
                                std::span<const std::byte> last_hidden, std::optional<DraftHistory> history);

  /// A mutable copy to diverge on: pages are shared, recurrent states copied.
  SequenceState fork() const;

  const StateGeometry& geometry() const { return geometry_; }
  Ops& ops() const { return *ops_; }

  /// Committed positions n of every target layer.
  int length() const { return kv_.length(); }

  KvCache& kv() { return kv_; }
  const KvCache& kv() const { return kv_; }
  RecurrentState& recurrent() { return recurrent_; }
  const RecurrentState& recurrent() const { return recurrent_; }
  std::optional<DraftHistory>& history() { return history_; }
  const std::optional<DraftHistory>& history() const { return history_; }

  /// The last `context_tokens` ids, oldest first; ids before the first token are `context_fill`.
  const std::vector<TokenId>& context() const { return context_; }
  /// Appends committed ids to the context.
  void push_context(std::span<const TokenId> ids);

  /// [1, H] f32: input of the drafter for position length() - 1; meaningless at length 0.
  TensorView last_hidden() const;

  /// A pass that stores as it goes (prefill, undrafted steps) marks the state while it runs; if it fails
  /// midway the layers disagree and the state refuses further use. Errors of require_valid: kInternal.
  void begin_direct_pass() { valid_ = false; }
  void end_direct_pass() { valid_ = true; }
  bool is_valid() const { return valid_; }
  void require_valid() const;

 private:
  Ops* ops_;
  StateGeometry geometry_;
  StatePools pools_;
  KvCache kv_;
  RecurrentState recurrent_;
  std::optional<DraftHistory> history_;
  Buffer last_hidden_;
  std::vector<TokenId> context_;
  bool valid_ = true;
};

}  // namespace mererun
