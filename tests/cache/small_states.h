#pragma once

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "cache/snapshot.h"
#include "tests/cache/limited_ops.h"

namespace mererun::testing {

/// Caches of a made-up model of a few kilobytes, filled with recognisable bytes instead of a model's.
struct SmallStates {
  explicit SmallStates(int head_dim = 8) : geometry(geometry_of(head_dim)) {}

  static StateGeometry geometry_of(int head_dim) {
    return {.attention_layers = 2,
            .kv_heads = 1,
            .head_dim = head_dim,
            .delta_layers = 2,
            .delta = {1, 2, 16, 8, 4},
            .hidden = 16,
            .draft_head = true};
  }

  LimitedOps ops{make_reference_ops()};
  StateGeometry geometry;
  StatePools pools = StatePools::create(ops, geometry);

  SequenceState state() { return SequenceState(ops, geometry, pools); }

  /// Appends positions as a pass would: every written byte depends on the position and its token.
  void extend(SequenceState& state, std::span<const TokenId> ids) {
    if (ids.empty()) return;
    const int first = state.length();
    auto& history = state.history();
    const TensorView last = state.last_hidden();
    if (history && first > 0) history->append(last, ids.first(1));
    state.kv().reserve(static_cast<int>(ids.size()));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const int position = first + static_cast<int>(i);
      for (int l = 0; l < geometry.attention_layers; ++l) write_position(state.kv(), l, position, ids[i]);
      for (int c = 0; c < geometry.hidden; ++c)
        last.row<float>(0)[c] =
            static_cast<float>(std::int64_t{position} * 31 + std::int64_t{ids[i]} * 7 + c);
      if (history && i + 1 < ids.size()) history->append(last, ids.subspan(i + 1, 1));
      auto* recurrent = state.recurrent().bytes().as<float>();
      const std::size_t floats = state.recurrent().bytes().size_bytes() / sizeof(float);
      for (std::size_t j = 0; j < floats; j += 5)
        recurrent[j] = recurrent[j] * 0.5f + static_cast<float>(ids[i] + static_cast<int>(j % 11));
    }
    state.kv().set_length(first + static_cast<int>(ids.size()));
    if (history) evaluate_history(*history);
  }

  /// Whole groups of 256 transitions move from waiting rows into the head's cache.
  void evaluate_history(DraftHistory& history) {
    const int rows = history.transitions() / 256 * 256 - history.evaluated();
    if (rows <= 0) return;
    const int slot = history.evaluated();
    history.cache().reserve(rows);
    for (int r = 0; r < rows; ++r)
      write_position(history.cache(), 0, slot + r, history.waiting_tokens()[static_cast<std::size_t>(r)]);
    history.cache().set_length(slot + rows);
    history.pop_front(rows);
  }

  static void write_position(KvCache& cache, int layer, int position, TokenId id) {
    const KvLayerView view = cache.layer(layer);
    std::byte* page = view.pages[position / kKvPagePositions];
    const auto slot = static_cast<std::size_t>(position % kKvPagePositions);
    const auto width = static_cast<std::size_t>(view.head_dim);
    auto* keys = reinterpret_cast<std::int16_t*>(page + view.key_codes) + slot * width;
    auto* values = reinterpret_cast<std::int16_t*>(page + view.value_codes) + slot * width;
    for (std::size_t d = 0; d < width; ++d) {
      keys[d] = static_cast<std::int16_t>(position * 3 + id + layer + static_cast<int>(d));
      values[d] = static_cast<std::int16_t>(position * 5 - id - layer - static_cast<int>(d));
    }
    reinterpret_cast<float*>(page + view.key_scales)[slot] = static_cast<float>(position);
    reinterpret_cast<float*>(page + view.value_scales)[slot] = static_cast<float>(id);
  }

  std::shared_ptr<const Snapshot> snapshot(std::vector<TokenId> ids,
                                           SnapshotClass kind = SnapshotClass::kPrompt,
                                           std::vector<float> logits = {}) {
    SequenceState s = state();
    extend(s, ids);
    return Snapshot::capture(s, std::move(ids), std::move(logits), kind);
  }
  /// A snapshot of `base` and `more` that shares the base's whole pages.
  std::shared_ptr<const Snapshot> extended(const Snapshot& base, const std::vector<TokenId>& more,
                                           SnapshotClass kind = SnapshotClass::kPrompt) {
    SequenceState s = base.restore();
    extend(s, more);
    std::vector<TokenId> ids(base.ids().begin(), base.ids().end());
    ids.insert(ids.end(), more.begin(), more.end());
    return Snapshot::capture(s, std::move(ids), {}, kind);
  }
};

inline std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// n ids from `first` on.
inline std::vector<TokenId> count_up(int first, int n) {
  std::vector<TokenId> ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

}  // namespace mererun::testing
