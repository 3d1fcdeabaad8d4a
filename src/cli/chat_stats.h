#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mererun {

/// What `text chat --stats` prints of one reply.
struct ChatStats {
  std::string route;   // mtp-speculative, final-target-pipelined, serial
  std::string reason;  // admission reason
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t generated_tokens = 0;
  double prefill_seconds = 0;
  std::optional<double> decode_rate;  // tokens a second
  std::int64_t rounds = 0;
  std::int64_t drafted_tokens = 0;
  std::int64_t accepted_tokens = 0;
  std::optional<std::int64_t> history_tokens;  // absent when the request did not draft
};

/// One line of key=value fields: route reason prompt cached generated prefill_tps decode_tps rounds drafted
/// accepted acceptance history. A value that does not exist is "-": a rate of nothing that was timed,
/// acceptance of no drafts.
std::string stats_line(const ChatStats& stats);

}  // namespace mererun
