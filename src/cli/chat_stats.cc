#include "cli/chat_stats.h"

#include <fmt/format.h>

namespace mererun {

namespace {

std::string rate(std::int64_t count, double seconds) {
  return seconds > 0 ? fmt::format("{:.1f}", static_cast<double>(count) / seconds) : "-";
}

}  // namespace

std::string stats_line(const ChatStats& stats) {
  const std::string acceptance = stats.drafted_tokens > 0
                                     ? fmt::format("{:.3f}", static_cast<double>(stats.accepted_tokens) /
                                                                 static_cast<double>(stats.drafted_tokens))
                                     : "-";
  return fmt::format(
      "route={} reason={} prompt={} cached={} generated={} prefill_tps={} decode_tps={} rounds={} drafted={} "
      "accepted={} acceptance={} history={}\n",
      stats.route, stats.reason, stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens,
      rate(stats.prompt_tokens - stats.cached_tokens, stats.prefill_seconds),
      rate(stats.generated_tokens, stats.decode_seconds), stats.rounds, stats.drafted_tokens,
      stats.accepted_tokens, acceptance, stats.history_tokens ? std::to_string(*stats.history_tokens) : "-");
}

}  // namespace mererun
