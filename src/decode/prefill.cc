#include "decode/prefill.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "decode/draft_history_pass.h"

namespace mererun {

Prefill::Prefill(Model& model, SequenceState& state, std::span<const TokenId> prompt, PrefillOptions options)
    : model_(model), state_(state), prompt_(prompt), options_(std::move(options)) {
  if (prompt.empty() || state.length() > static_cast<int>(prompt.size())) {
    fail_expected(ErrorCode::kInvalidArgument, "prompt",
                  fmt::format("at least {} tokens", std::max(1, state.length())),
                  fmt::format("{}", prompt.size()));
  }
  options_.chunk = std::clamp(options_.chunk, 1, model.limits().max_rows);
  // Without a prepared history the drafter starts where decoding starts, also after a restored prefix.
  if (auto& history = state_.history(); history && options_.history == HistoryMode::kNone)
    history->restart_at(static_cast<int>(prompt.size()) - 1);
}

int Prefill::edge_after(Position at) const {
  int edge = std::min((at / options_.chunk + 1) * options_.chunk, static_cast<int>(prompt_.size()));
  const auto stop = std::upper_bound(options_.stops.begin(), options_.stops.end(), at);
  if (stop != options_.stops.end()) edge = std::min<int>(edge, *stop);
  return edge;
}

/// The chunk from `at` on will be evaluated.
void Prefill::expect_from(Position at) {
  const std::span<const TokenId> before = prompt_.first(static_cast<std::size_t>(at));
  const int rows = edge_after(at) - at;
  const auto held = static_cast<std::size_t>(state_.length());
  model_.decoder().expect(state_, before.subspan(held),
                          prompt_.subspan(before.size(), static_cast<std::size_t>(rows)));
}

void Prefill::step() {
  const int first = state_.length();
  const int edge = edge_after(first);
  if (edge <= first) return;
  expect_from(first);  // nothing new but for the first chunk
  expect_from(edge);
  const auto ids = prompt_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(edge - first));
  auto& history = state_.history();
  const bool records = history && options_.history != HistoryMode::kNone;
  // The previous chunk's last hidden row pairs with this chunk's first token; the pass below overwrites it.
  if (records && first > 0) history->append(state_.last_hidden(), ids.first(1));
  const PassSegment segment{&state_, nullptr, 0, edge - first};
  const TensorView hidden = model_.decoder().forward(ids, {&segment, 1});
  if (!records) return;
  if (ids.size() > 1) history->append(hidden.row_range(0, edge - first - 1), ids.subspan(1));
  if (options_.history == HistoryMode::kStreaming)
    evaluate_whole_groups(*model_.head(), *history, model_.limits().max_rows);
}

}  // namespace mererun
