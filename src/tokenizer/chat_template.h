#pragma once

#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_limits.h"

namespace mererun {

namespace jinja {
struct Program;
}

/// One message of plain text, for callers without JSON.
struct ChatMessage {
  std::string role;
  std::string content;
  std::optional<std::string> reasoning_content;
};

/// What a chat template is rendered from.
struct ChatInputs {
  const nlohmann::ordered_json* messages = nullptr;   // an array of objects; required
  const nlohmann::ordered_json* tools = nullptr;      // null: no tools
  const nlohmann::ordered_json* arguments = nullptr;  // null: none; an object of further template variables
  bool add_generation_prompt = true;
};

/// A chat template: parsed once, rendered many times.
///
/// The language is the Jinja that Hugging Face chat templates are written in (trim_blocks and lstrip_blocks
/// on, the tags break, continue and generation, the functions raise_exception and strftime_now, a tojson that
/// escapes nothing for HTML). A template cannot read files, and RenderLimits bound what it can compute.
/// Unlike the sandbox of transformers, methods that change a list or dict (append, update, ...) work.
///
/// Thread-safety: rendering is thread-safe; the setters are not.
/// Source: Jinja2 3.1 template designer documentation; transformers, "Chat templates".
class ChatTemplate {
 public:
  using Clock = std::function<std::tm()>;

  /// `name` is what errors call the template. Errors: kCorruptData "<name>:<line>: ..." for a syntax error or
  /// a source of more than 4 MiB, kUnsupported for a tag that is not served (include, import, extends,
  /// autoescape, recursive loops).
  static ChatTemplate parse(std::string source, std::string name);

  /// Errors: kInvalidArgument "<name>:<line>: ..." when the template fails or exceeds a limit;
  /// kInvalidArgument with exactly the template's own text when it calls raise_exception.
  std::string render(const nlohmann::ordered_json& variables) const;

  /// Renders with the variables that transformers passes: messages, tools, documents (none),
  /// add_generation_prompt, the special tokens, then `arguments`. Errors: as render; kInvalidArgument when
  /// messages are no array, when arguments are no object, or when they name one of the first four.
  std::string render_chat(const ChatInputs& inputs) const;
  std::string render_chat(const std::vector<ChatMessage>& messages, bool add_generation_prompt = true) const;

  /// Variables such as bos_token that every render_chat gets; an object.
  void set_special_tokens(const nlohmann::ordered_json& tokens);
  /// What strftime_now reads; local time by default.
  void set_clock(Clock clock) { clock_ = std::move(clock); }
  void set_limits(const RenderLimits& limits) { limits_ = limits; }

  const std::string& source() const { return source_; }
  const std::string& name() const { return name_; }

 private:
  ChatTemplate(std::string source, std::string name);

  std::string source_;
  std::string name_;
  std::shared_ptr<const jinja::Program> program_;
  std::shared_ptr<const nlohmann::ordered_json> special_tokens_;
  Clock clock_;
  RenderLimits limits_;
};

/// Loads a checkpoint's template: chat_template.jinja if the folder has it, else `chat_template` of
/// tokenizer_config.json, which is the text itself or a list of named templates ("default" is taken). Special
/// tokens (bos_token, eos_token, ...) of tokenizer_config.json become variables. Errors: kNotFound when the
/// folder has no template, kIo, kCorruptData for JSON that is none.
ChatTemplate load_chat_template(const std::filesystem::path& folder);

}  // namespace mererun
