#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace mererun {

/// A piece of output, in order. Concatenated pieces of one text kind equal the whole text of that kind,
/// whatever the chunks in which the model's text arrived.
struct OutputPiece {
  enum class Kind { kReasoning, kContent, kToolCall };
  Kind kind = Kind::kContent;
  std::string text;       // of reasoning or content
  std::string name;       // of a tool call
  std::string arguments;  // of a tool call: one JSON object
  int index = 0;          // of a tool call, from 0
};

struct OutputParserOptions {
  bool starts_in_reasoning = false;                     // the prompt ended inside <think>
  bool is_plain = false;                                // the text is content as it stands
  std::shared_ptr<const nlohmann::ordered_json> tools;  // the request's tools; null: calls are plain text
};

/// Splits the model's text into reasoning, content and tool calls as it grows.
///
/// Reasoning ends at the first `</think>`; output that never closes it is all reasoning. A tool call is
/// `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>` or a JSON object (see
/// ToolCallParser). It comes out whole when complete, its values typed by the tool's schema; markup never
/// leaks, and no other text is lost. Thread-safety: one thread at a time.
class OutputParser {
 public:
  explicit OutputParser(OutputParserOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  /// Takes more text (whole UTF-8 characters) and appends what became final.
  void feed(std::string_view text, std::vector<OutputPiece>& out);
  /// The text is over. `drops_open_call`: a call that was cut by the token budget is dropped; otherwise what
  /// is there of it comes out.
  void finish(bool drops_open_call, std::vector<OutputPiece>& out);

  int tool_calls() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace mererun
