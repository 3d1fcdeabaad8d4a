#include "decode/stop_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mererun {

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kToolCalls: return "tool_calls";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kError: return "error";
  }
  return "unknown";
}

StreamMatcher::StreamMatcher(std::string pattern)
    : pattern_(std::move(pattern)), borders_(pattern_.size(), 0) {
  for (std::size_t i = 1, border = 0; i < pattern_.size(); ++i) {
    while (border > 0 && pattern_[i] != pattern_[border]) border = borders_[border - 1];
    if (pattern_[i] == pattern_[border]) ++border;
    borders_[i] = border;
  }
}

bool StreamMatcher::feed(char byte) {
  while (matched_ > 0 && pattern_[matched_] != byte) matched_ = borders_[matched_ - 1];
  if (pattern_[matched_] == byte) ++matched_;
  if (matched_ < pattern_.size()) return false;
  matched_ = borders_.back();
  return true;
}

StopRules::StopRules(StopOptions options)
    : options_(std::move(options)),
      reasoning_end_("</think>"),
      tool_call_start_("<tool_call>"),
      tool_call_end_("</tool_call>"),
      in_reasoning_(options_.starts_in_reasoning) {
  if (options_.max_tokens < 1) {
    fail_expected(ErrorCode::kInvalidArgument, "max_tokens", "at least 1",
                  fmt::format("{}", options_.max_tokens));
  }
  for (const std::string& text : options_.stop_strings) {
    if (text.empty()) {
      fail_expected(ErrorCode::kInvalidArgument, "stop", "non-empty strings", "an empty one");
    }
    stops_.emplace_back(text);
  }
}

StopStep StopRules::accept(const EmittedToken& token) {
  MERERUN_CHECK(!is_finished_, "no token follows the one that finished the request");
  StopStep step;
  if (std::find(options_.eos_ids.begin(), options_.eos_ids.end(), token.id) != options_.eos_ids.end()) {
    step.is_emitted = false;
    step.finish = FinishReason::kStop;
  } else {
    ++num_emitted_;
    if (in_reasoning_) ++num_reasoning_;
    step.is_cut = scan(token.text, step);
    if (!step.finish && token.completes_constraint) step.finish = FinishReason::kStop;
    if (!step.finish && num_emitted_ >= options_.max_tokens) step.finish = FinishReason::kLength;
  }
  is_finished_ = step.finish.has_value();
  if (is_finished_) {
    step.text = release_held();
    return step;
  }
  std::size_t held = std::max(reasoning_end_.partial(), tool_call_start_.partial());
  for (const StreamMatcher& stop : stops_) held = std::max(held, stop.partial());
  step.text = release_all_but(held);
  return step;
}

bool StopRules::scan(std::string_view text, StopStep& step) {
  for (const char byte : text) {
    held_.push_back(byte);
    std::size_t longest = 0;
    for (StreamMatcher& stop : stops_) {
      if (stop.feed(byte)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) {
      held_.resize(held_.size() - longest);
      step.finish = FinishReason::kStop;
      return true;
    }
    if (completes_tool_call(byte)) {
      step.finish = FinishReason::kToolCalls;
      return true;
    }
  }
  return false;
}

bool StopRules::completes_tool_call(char byte) {
  // The matchers of the markers run in every state: their partial matches decide what is held back.
  const bool reasoning_ends = reasoning_end_.feed(byte);
  const bool starts = tool_call_start_.feed(byte);
  const bool ends = tool_call_end_.feed(byte);
  if (in_reasoning_) {
    if (reasoning_ends) in_reasoning_ = false;
    return false;
  }
  if (starts) in_tool_call_ = true;
  if (!ends || !in_tool_call_) return false;
  in_tool_call_ = false;
  return options_.stops_after_tool_call;
}

std::string StopRules::release_held() { return release_all_but(0); }

std::string StopRules::release_all_but(std::size_t held) {
  std::string released = held_.substr(0, held_.size() - held);
  held_.erase(0, released.size());
  return released;
}

}  // namespace mererun
