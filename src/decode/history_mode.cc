#include "decode/history_mode.h"

#include "decode/option_text.h"

namespace mererun {

std::string_view name_of(HistoryMode mode) {
  switch (mode) {
    case HistoryMode::kNone: return "none";
    case HistoryMode::kRetained: return "retained";
    case HistoryMode::kStreaming: return "streaming";
  }
  return "unknown";
}

StreamHistory parse_stream_history(std::string_view text) {
  const std::string word = normalised(text);
  if (word == "none") return StreamHistory::kNone;
  if (word == "0" || word == "false" || word == "off") return StreamHistory::kOff;
  return StreamHistory::kOn;
}

HistoryMode choose_history_mode(const HistoryCase& request) {
  if (request.is_excluded) return HistoryMode::kNone;
  if (request.is_flash_next) return HistoryMode::kStreaming;
  switch (request.stream_history) {
    case StreamHistory::kNone: return HistoryMode::kNone;
    case StreamHistory::kOff:
      return request.is_dense && request.num_prompt_tokens <= kRetainedHistoryTokens ? HistoryMode::kRetained
                                                                                     : HistoryMode::kNone;
    case StreamHistory::kOn: break;
  }
  return HistoryMode::kStreaming;
}

}  // namespace mererun
