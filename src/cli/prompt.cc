#include "cli/prompt.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace mererun {

namespace {

using json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

std::string read_stream(std::FILE* stream, const std::string& where) {
  std::string text;
  std::array<char, 65536> buffer;
  std::size_t count = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), stream)) > 0) text.append(buffer.data(), count);
  if (std::ferror(stream) != 0) {
    // Nothing runs yet that Ctrl-C could end first.
    if (errno == EINTR) fail_expected(ErrorCode::kCancelled, where, "text", "an interrupt");
    fail_expected(ErrorCode::kIo, where, "readable text", std::strerror(errno));
  }
  return text;
}

std::string without_line_end(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

void require_utf8(const std::string& where, const std::string& text) {
  try {
    (void)json(text).dump();  // the cheapest strict check of UTF-8 at hand
  } catch (const json::exception&) {
    fail_expected(ErrorCode::kInvalidArgument, where, "UTF-8 text", "bytes that are none");
  }
}

void check_part(const json& part, const std::string& where) {
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
    fail_expected(ErrorCode::kInvalidArgument, where, "a part with a type", part.type_name());
  }
  if (part["type"] != "text") {
    fail_expected(ErrorCode::kUnsupported, where, "a text part", part["type"].get<std::string>());
  }
  if (!part.contains("text") || !part["text"].is_string()) {
    fail_expected(ErrorCode::kInvalidArgument, where, "a text part with a text", "none");
  }
}

void check_message(const json& message, const std::string& where) {
  if (!message.is_object())
    fail_expected(ErrorCode::kInvalidArgument, where, "an object", message.type_name());
  const auto role = message.find("role");
  const bool is_role = role != message.end() && role->is_string() &&
                       std::ranges::find(kRoles, role->get<std::string>()) != kRoles.end();
  if (!is_role) {
    fail_expected(
        ErrorCode::kInvalidArgument, where + ".role", "one of system, developer, user, assistant, tool",
        role == message.end() ? "none" : role->dump(-1, ' ', false, json::error_handler_t::replace));
  }
  const auto content = message.find("content");
  const bool is_absent = content == message.end() || content->is_null();
  if (is_absent && *role == "assistant" && message.contains("tool_calls")) return;
  if (is_absent || (!content->is_string() && !content->is_array())) {
    fail_expected(ErrorCode::kInvalidArgument, where + ".content", "a text or a list of parts",
                  is_absent ? "none" : content->type_name());
  }
  if (content->is_array()) {
    for (std::size_t i = 0; i < content->size(); ++i) {
      check_part((*content)[i], where + ".content[" + std::to_string(i) + "]");
    }
  }
}

}  // namespace

PromptSource prompt_source(const TextChatOptions& options, bool stdin_is_terminal) {
  if (options.prompt) return PromptSource::kText;
  if (options.prompt_file) return PromptSource::kFile;
  if (options.messages_file) return PromptSource::kMessages;
  if (options.interactive) return PromptSource::kTurns;
  if (!stdin_is_terminal) return PromptSource::kStdin;
  throw Error(ErrorCode::kInvalidArgument,
              "text chat: expected one of --prompt, --prompt-file, --messages or piped text, got none",
              "--interactive starts a conversation");
}

json parse_json(const std::string& text, const std::string& where, int most_nesting) {
  // The JSON library takes a NUL for the end of the text.
  if (const auto nul = text.find('\0'); nul != std::string::npos)
    fail_expected(ErrorCode::kInvalidArgument, where, "JSON", "a NUL at byte " + std::to_string(nul));
  try {
    return json::parse(text, [&](int open, json::parse_event_t event, const json&) {
      const bool opens =
          event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
      if (opens && open >= most_nesting) {
        fail_expected(ErrorCode::kInvalidArgument, where,
                      "at most " + std::to_string(most_nesting) + " levels of nesting", "more");
      }
      return true;
    });
  } catch (const json::parse_error& error) {
    fail_expected(ErrorCode::kInvalidArgument, where, "JSON",
                  "an error at byte " + std::to_string(error.byte));
  }
}

json parse_messages(const std::string& text, const std::string& where) {
  json messages = parse_json(text, where, kMostNesting);
  if (!messages.is_array() || messages.empty()) {
    fail_expected(ErrorCode::kInvalidArgument, where, "a list of messages",
                  messages.is_array() ? "an empty one" : messages.type_name());
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    check_message(messages[i], where + ": message " + std::to_string(i));
  }
  return messages;
}

json first_messages(const TextChatOptions& options, PromptSource source,
                    const std::function<std::string()>& read_stdin) {
  json messages = json::array();
  if (options.system) {
    require_utf8("--system", *options.system);
    messages.push_back({{"role", "system"}, {"content", *options.system}});
  }
  switch (source) {
    case PromptSource::kText: messages.push_back(user_message("--prompt", *options.prompt)); break;
    case PromptSource::kFile:
      messages.push_back({{"role", "user"}, {"content", prompt_file_text(*options.prompt_file)}});
      break;
    case PromptSource::kStdin:
      messages.push_back(user_message("stdin", without_line_end(read_stdin()),
                                      "--prompt TEXT, text piped to the program, or --interactive"));
      break;
    case PromptSource::kTurns: break;
    case PromptSource::kMessages: {
      const json listed = parse_messages(read_file(*options.messages_file), *options.messages_file);
      if (options.system && listed.front()["role"] == "system") {
        fail_expected(ErrorCode::kInvalidArgument, "--system", "no system message in --messages beside it",
                      "one");
      }
      messages.insert(messages.end(), listed.begin(), listed.end());
      break;
    }
  }
  return messages;
}

std::string prompt_text(const std::string& where, std::string text, const std::string& hint) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw Error(ErrorCode::kInvalidArgument, where + ": expected a prompt, got nothing", hint);
  require_utf8(where, text);
  return text;
}

std::string prompt_file_text(const std::string& path) {
  return prompt_text(path, without_line_end(read_file(path)));
}

json user_message(const std::string& where, const std::string& text, const std::string& hint) {
  return {{"role", "user"}, {"content", prompt_text(where, text, hint)}};
}

std::string read_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail_expected(ErrorCode::kNotFound, path, "a file", "none");
  if (std::filesystem::is_directory(path, error)) fail_expected(ErrorCode::kIo, path, "a file", "a folder");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) fail_expected(ErrorCode::kIo, path, "a readable file", std::strerror(errno));
  return read_stream(file.get(), path);
}

std::string read_stdin() { return read_stream(stdin, "stdin"); }

}  // namespace mererun
