#include "decode/draft_history_pass.h"

#include <algorithm>

#include "base/error.h"
#include "decode/history_mode.h"

namespace mererun {

TensorView evaluate_waiting(MtpHead& head, DraftHistory& history, int rows, int max_rows) {
  MERERUN_CHECK(rows >= 1 && rows <= history.waiting(), "evaluates what waits");
  TensorView last;
  while (rows > 0) {
    const int n = std::min(rows, max_rows);
    const std::span<const TokenId> tokens(history.waiting_tokens().data(), static_cast<std::size_t>(n));
    const int first_slot = history.evaluated();
    const TensorView out = head.forward(history.waiting_hidden().row_range(0, n), tokens, first_slot,
                                        history.base(), history.cache());
    history.cache().set_length(first_slot + n);
    history.pop_front(n);
    last = out.row_range(n - 1, 1);
    rows -= n;
  }
  return last;
}

void evaluate_whole_groups(MtpHead& head, DraftHistory& history, int max_rows) {
  const int total = history.base() + history.transitions();
  const int whole_end = total / kHistoryGroup * kHistoryGroup;
  const int rows = whole_end - history.base() - history.evaluated();
  if (rows > 0) evaluate_waiting(head, history, rows, max_rows);
}

}  // namespace mererun
