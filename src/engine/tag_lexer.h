#pragma once

#include <cstddef>
#include <string_view>

namespace mererun {

/// The markup of the model's output. `kText` is everything else.
enum class OutputTag {
  kText,
  kThinkOpen,       // <think>
  kThinkClose,      // </think>
  kCallOpen,        // <tool_call>
  kCallClose,       // </tool_call>
  kFunctionOpen,    // <function=      (the name and its '>' follow as text)
  kFunctionClose,   // </function>
  kParameterOpen,   // <parameter=     (the key and its '>' follow as text)
  kParameterClose,  // </parameter>
};

/// The literal of a tag; empty for kText.
std::string_view text_of(OutputTag tag);

/// One tag, or a run of text. Readers consume it by shortening `text`; an event with no text left is done.
/// For a tag `text` is its whole literal. The view lives until the next call of the lexer or the end of the
/// input.
struct OutputEvent {
  OutputTag tag = OutputTag::kText;
  std::string_view text;

  std::string_view take(std::size_t size);
  std::string_view take_until(std::string_view set) { return take(text.find_first_of(set)); }
  std::string_view take_while(std::string_view set) { return take(text.find_first_not_of(set)); }
  std::string_view take_all() { return take(text.size()); }
};

/// Cuts text into tags and the text between them, as it arrives. Only the beginning of a possible tag is
/// held back, so the same text in any chunks gives the same tags at the same places; text runs may be cut
/// differently. No tag is the beginning of another and '<' stands only at their start: a held beginning
/// that fails is text for good, and the work is linear.
///
/// Thread-safety: one thread at a time.
class TagLexer {
 public:
  enum class Tags { kThink, kThinkAndCalls };
  explicit TagLexer(Tags tags) : tags_(tags) {}

  /// Takes the next event off the front of `input`. False when `input` is used up.
  [[nodiscard]] bool next(std::string_view& input, OutputEvent& event);
  /// The input is over: what is held is text (empty when nothing is).
  OutputEvent flush();

 private:
  OutputTag find_extension(char c) const;

  Tags tags_;
  OutputTag held_tag_ = OutputTag::kText;  // a tag that begins with what is held
  std::size_t held_size_ = 0;
};

}  // namespace mererun
