#include "decode/draft_history_pass.h"

#include <algorithm>

#include "base/error.h"
#include "decode/history_mode.h"

namespace mererun {
namespace {

/// The first `rows` waiting tokens.
std::span<const TokenId> next_tokens(const DraftHistory& history, int rows) {
  return std::span(history.waiting_tokens()).first(static_cast<std::size_t>(rows));
}

/// The first `rows` waiting transitions are in the cache.
void advance(DraftHistory& history, int rows) {
  history.cache().set_length(history.evaluated() + rows);
  history.pop_front(rows);
}

/// Evaluates the first `rows` waiting transitions; nobody reads their outputs.
void append_waiting(MtpHead& head, DraftHistory& history, int rows, int max_rows) {
  while (rows > 0) {
    const int n = std::min(rows, max_rows);
    head.append(history.waiting_hidden().row_range(0, n), next_tokens(history, n), history.evaluated(),
                history.base(), history.cache());
    advance(history, n);
    rows -= n;
  }
}

}  // namespace

TensorView evaluate_waiting(MtpHead& head, DraftHistory& history, int max_rows) {
  MERERUN_CHECK(history.waiting() >= 1, "evaluates what waits");
  const int last = std::min(history.waiting(), max_rows);
  append_waiting(head, history, history.waiting() - last, max_rows);
  const TensorView out =
      head.forward_last(history.waiting_hidden().row_range(0, last), next_tokens(history, last),
                        history.evaluated(), history.base(), history.cache());
  advance(history, last);
  return out;
}

void evaluate_whole_groups(MtpHead& head, DraftHistory& history, int max_rows) {
  const int total = history.base() + history.transitions();
  const int whole_end = total / kHistoryGroup * kHistoryGroup;
  append_waiting(head, history, whole_end - history.base() - history.evaluated(), max_rows);
}

}  // namespace mererun
