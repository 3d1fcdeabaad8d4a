#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/chat_encoder.h"

namespace mererun {

/// Counts the tokens of a rendered conversation.
using ChatLength = std::function<int(const std::vector<ChatTurn>&)>;

/// A long text with one fact in it, a question about the fact, and a shorter second turn.
struct RetrievalPrompts {
  std::string marker;               // what the answer must name
  std::vector<ChatTurn> first;      // exactly the first length
  std::vector<ChatTurn> follow_up;  // `first`, a reply, another question: exactly the second length
};

/// Builds prompts of exactly `first_tokens` and `follow_up_tokens` tokens: numbered filler sentences with the
/// marker after 40% of them and the question at the end; words of one token adjust the lengths.
///
/// Errors: kUnsupported when the tokenizer and the template leave no such text: a template that needs more
/// than the difference for a turn, or a vocabulary without a filler word of one token.
RetrievalPrompts build_retrieval_prompts(const ChatLength& length, int first_tokens, int follow_up_tokens);

/// The benchmark's made-up message: `lines` numbered lines, after 40% of them one with a checksum word, and a
/// question about it.
std::string numbered_prompt(int lines);

}  // namespace mererun
