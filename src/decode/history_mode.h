#pragma once

#include <string_view>

namespace mererun {

/// How a request's draft history is built from its prompt. A transition is (hidden row of token t, token t +
/// 1).
enum class HistoryMode {
  kNone,       // nothing is prepared; transitions of decoding still accumulate
  kRetained,   // all prompt hidden rows are kept and evaluated at the first draft
  kStreaming,  // transitions are evaluated during prefill, in groups of 256 counted from position 0
};

/// "none", "retained" or "streaming".
std::string_view name_of(HistoryMode mode);

/// Longest prompt, in tokens, whose hidden rows are retained.
inline constexpr int kRetainedHistoryTokens = 4096;

/// Transitions evaluated as one group by streaming.
inline constexpr int kHistoryGroup = 256;

/// Meaning of MERERUN_Q35_MTP_STREAM_HISTORY.
enum class StreamHistory {
  kOn,    // unset, 1, anything else
  kOff,   // 0, false, off: retained where that is possible
  kNone,  // none: no history from the prompt
};

/// Surrounding white space and case don't matter.
StreamHistory parse_stream_history(std::string_view text);

struct HistoryCase {
  bool is_excluded =
      false;  // rule 1, 3, 6, 7 or 8 of admission holds: no draft can ever follow from this state
  bool is_flash_next = false;
  bool is_dense = false;
  StreamHistory stream_history = StreamHistory::kOn;
  int num_prompt_tokens = 0;
};

HistoryMode choose_history_mode(const HistoryCase& request);

}  // namespace mererun
