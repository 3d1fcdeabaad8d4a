#pragma once

#include <optional>
#include <vector>

#include "engine/engine.h"
#include "engine/request.h"

namespace mererun {

/// Closer ends of messages would cost more in short prefill passes than they save.
inline constexpr int kMessageGap = 256;

/// A prompt as ids, and where snapshots of it are worth taking.
struct PromptPlan {
  std::vector<TokenId> ids;
  /// Ends of the tools and system part, of all messages but the last, and of all messages, where they are
  /// proper prefixes of the prompt's ids; ascending.
  std::vector<Position> semantic;
  Position messages_end = 0;           // the last of them, where it is the end of all messages; else 0
  std::optional<Position> system_end;  // the first of them, where there is such a part
  /// Ends of earlier messages, at least kMessageGap apart; ascending. An edit of an earlier turn starts
  /// there.
  std::vector<Position> message_ends;
  bool starts_in_reasoning = false;  // the prompt ends inside <think>
};

/// Renders and encodes. Errors: the template's and the tokenizer's; kInvalidArgument unless the request has
/// exactly one prompt, or for an id outside the vocabulary, or an empty prompt.
PromptPlan plan_prompt(const Engine& engine, const GenerateRequest& request);

}  // namespace mererun
