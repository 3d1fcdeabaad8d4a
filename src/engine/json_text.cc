#include "engine/json_text.h"

#include <cstddef>
#include <nlohmann/json.hpp>

namespace mererun {
namespace {

constexpr int kMaxDepth = 256;

/// The place after the string literal that starts at `begin`. The text is valid JSON.
std::size_t skip_string(std::string_view json, std::size_t begin) {
  std::size_t at = begin + 1;
  while (json[at] != '"') at += json[at] == '\\' ? 2 : 1;
  return at + 1;
}

/// The place after the value that starts at `begin`. The text is valid compact JSON.
std::size_t skip_value(std::string_view json, std::size_t begin) {
  int depth = 0;
  std::size_t at = begin;
  while (at < json.size()) {
    const char c = json[at];
    if (c == '"') {
      at = skip_string(json, at);
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) break;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    ++at;
  }
  return at;
}

}  // namespace

std::string quote_json(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<std::string> compact_json(std::string_view text) {
  // The JSON library takes a NUL for the end of the text; what follows would come through unchecked.
  if (text.find('\0') != std::string_view::npos || !nlohmann::json::accept(text)) return std::nullopt;
  std::string compact;
  int depth = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"') {
      const std::size_t end = skip_string(text, at);
      compact.append(text, at, end - at);
      at = end;
      continue;
    }
    if ((c == '{' || c == '[') && ++depth > kMaxDepth) return std::nullopt;
    if (c == '}' || c == ']') --depth;
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') compact += c;
    ++at;
  }
  return compact;
}

std::vector<JsonMember> members_of_compact_object(std::string_view object) {
  std::vector<JsonMember> members;
  for (std::size_t at = 1; object[at] != '}';) {
    if (object[at] == ',') ++at;
    const std::size_t key_end = skip_string(object, at);
    const std::size_t value_end = skip_value(object, key_end + 1);
    members.push_back({unquote_json(object.substr(at, key_end - at)).value_or(std::string()),
                       object.substr(key_end + 1, value_end - key_end - 1)});
    at = value_end;
  }
  return members;
}

std::optional<std::string> unquote_json(std::string_view literal) {
  const nlohmann::json parsed = nlohmann::json::parse(literal, nullptr, false);
  if (!parsed.is_string()) return std::nullopt;
  return parsed.get<std::string>();
}

}  // namespace mererun
