#include "cli/chat_stats.h"

#include <fmt/format.h>

namespace mererun {

namespace {

std::string text(std::optional<double> rate) { return rate ? fmt::format("{:.1f}", *rate) : "-"; }

std::optional<double> prefill_rate(const ChatStats& stats) {
  if (stats.prefill_seconds <= 0) return std::nullopt;
  return static_cast<double>(stats.prompt_tokens - stats.cached_tokens) / stats.prefill_seconds;
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
      text(prefill_rate(stats)), text(stats.decode_rate), stats.rounds, stats.drafted_tokens,
      stats.accepted_tokens, acceptance, stats.history_tokens ? std::to_string(*stats.history_tokens) : "-");
}

}  // namespace mererun
