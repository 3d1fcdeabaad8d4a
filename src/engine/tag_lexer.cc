#include "engine/tag_lexer.h"

#include <algorithm>
#include <array>

namespace mererun {
namespace {

constexpr std::array<std::string_view, 9> kLiterals = {
    "",           "<think>",     "</think>",    "<tool_call>",  "</tool_call>",
    "<function=", "</function>", "<parameter=", "</parameter>",
};
constexpr std::size_t kFirstTag = 1, kFirstCallTag = 3;

}  // namespace

std::string_view text_of(OutputTag tag) { return kLiterals[static_cast<std::size_t>(tag)]; }

std::string_view OutputEvent::take(std::size_t size) {
  const std::string_view front = text.substr(0, size);
  text.remove_prefix(front.size());
  return front;
}

OutputTag TagLexer::find_extension(char c) const {
  const std::string_view held = text_of(held_tag_).substr(0, held_size_);
  const std::size_t end = tags_ == Tags::kThink ? kFirstCallTag : kLiterals.size();
  for (std::size_t i = kFirstTag; i < end; ++i)
    if (kLiterals[i].substr(0, held_size_) == held && kLiterals[i][held_size_] == c)
      return static_cast<OutputTag>(i);
  return OutputTag::kText;
}

bool TagLexer::next(std::string_view& input, OutputEvent& event) {
  if (held_size_ == 0) {
    const std::size_t text_size = std::min(input.find('<'), input.size());
    if (text_size > 0) {
      event = {OutputTag::kText, input.substr(0, text_size)};
      input.remove_prefix(text_size);
      return true;
    }
  }
  while (!input.empty()) {
    const OutputTag tag = find_extension(input.front());
    if (tag == OutputTag::kText) {
      // The character itself may begin a tag, so it stays in the input.
      event = flush();
      return true;
    }
    held_tag_ = tag;
    ++held_size_;
    input.remove_prefix(1);
    if (held_size_ == text_of(tag).size()) {
      held_size_ = 0;
      event = {tag, text_of(tag)};
      return true;
    }
  }
  return false;
}

OutputEvent TagLexer::flush() {
  const std::string_view held = text_of(held_tag_).substr(0, held_size_);
  held_size_ = 0;
  return {OutputTag::kText, held};
}

}  // namespace mererun
