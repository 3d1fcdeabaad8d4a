#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/options.h"

namespace mererun {

enum class PromptSource {
  kText,      // --prompt
  kFile,      // --prompt-file
  kMessages,  // --messages
  kStdin,     // piped text, all of it
  kTurns,     // --interactive: the user types the first message too
};

/// Where the first user message of `text chat` comes from.
/// Errors: kInvalidArgument when there is none: stdin is a terminal and the conversation is not interactive.
PromptSource prompt_source(const TextChatOptions& options, bool stdin_is_terminal);

/// Levels of lists and objects that a conversation may have. Bounded because what prints them recurses.
inline constexpr int kMostNesting = 64;

/// The value that a text in JSON says; objects keep the order of their keys. `where` names the text in
/// messages. Errors: kInvalidArgument, also for more than `most_nesting` levels.
nlohmann::ordered_json parse_json(const std::string& text, const std::string& where, int most_nesting);

/// Checks a conversation: a JSON list, not empty, of objects with a role (system, developer, user, assistant,
/// tool) and a content (a text or a list of text parts; an assistant's may be missing beside tool_calls).
/// Objects keep the order of their keys: a template may print a tool call's arguments. `where` names the file
/// in messages. Errors: kInvalidArgument, also for more than kMostNesting levels; kUnsupported for parts that
/// are not text.
nlohmann::ordered_json parse_messages(const std::string& text, const std::string& where);

/// The messages a chat starts with: --system, then the prompt's; for PromptSource::kTurns without a prompt
/// only the former, possibly none. `read_stdin` is called for PromptSource::kStdin only. One line end at the
/// end of a file or of stdin is not part of the prompt. Errors: kInvalidArgument for an empty prompt or one
/// that is not UTF-8; kNotFound, kIo for files.
nlohmann::ordered_json first_messages(const TextChatOptions& options, PromptSource source,
                                      const std::function<std::string()>& read_stdin);

/// A prompt as every command takes it. `where` names its origin. Errors: kInvalidArgument, with `hint`, if
/// the text is blank, or if it is no UTF-8.
std::string prompt_text(const std::string& where, std::string text, const std::string& hint = {});
/// The same of a file, less one line end at its end. Errors: those of read_file too.
std::string prompt_file_text(const std::string& path);

/// One message of a user. Errors: those of prompt_text.
nlohmann::ordered_json user_message(const std::string& where, const std::string& text,
                                    const std::string& hint = {});

/// A whole file. Errors: kNotFound if it does not exist, kIo if it cannot be read.
std::string read_file(const std::string& path);

/// All of stdin. Errors: kIo.
std::string read_stdin();

}  // namespace mererun
