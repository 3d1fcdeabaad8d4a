#pragma once

#include <vector>

#include "engine/engine.h"
#include "engine/request.h"

namespace mererun {

/// A prompt as ids, and where snapshots of it are worth taking.
struct PromptPlan {
  std::vector<TokenId> ids;
  /// Ends of the tools and system part, of all messages but the last, and of all messages, where they are
  /// proper prefixes of the prompt's ids; ascending.
  std::vector<Position> semantic;
  bool starts_in_reasoning = false;  // the prompt ends inside <think>
};

/// Renders and encodes. Errors: the template's and the tokenizer's; kInvalidArgument unless the request has
/// exactly one prompt, or for an id outside the vocabulary, or an empty prompt.
PromptPlan plan_prompt(const Engine& engine, const GenerateRequest& request);

}  // namespace mererun
