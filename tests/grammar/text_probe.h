#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "decode/token_constraint.h"
#include "grammar/grammar_vocabulary.h"

namespace mererun::testing {

/// A token for every byte (its id), then `<tool_call>`, `</tool_call>`, `<think>`, `</think>` as added tokens
/// and an end of sequence.
std::shared_ptr<const GrammarVocabulary> byte_vocabulary();
inline constexpr TokenId kToolCallToken = 256;
inline constexpr TokenId kEndToolCallToken = 257;
inline constexpr TokenId kEndThinkToken = 259;
inline constexpr TokenId kEosToken = 260;

/// The tokenizer of the bundled checkpoints with its chat-end token as the end of sequence.
std::shared_ptr<const GrammarVocabulary> demo_vocabulary();

/// The text is one of those that the constraint over byte_vocabulary() allows, end included.
bool accepts(const TokenConstraint& constraint, std::string_view text);
/// The text is the beginning of one.
bool accepts_beginning(const TokenConstraint& constraint, std::string_view text);

/// The message of a form that is refused as invalid; empty for one that is not refused.
std::string refusal_of(const std::function<std::unique_ptr<TokenConstraint>()>& compile);

}  // namespace mererun::testing
