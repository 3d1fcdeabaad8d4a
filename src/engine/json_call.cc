#include "engine/json_call.h"

#include "engine/json_text.h"

namespace mererun {

std::optional<ParsedCall> parse_json_call(std::string_view text) {
  const std::optional<std::string> json = compact_json(text);
  if (!json || json->front() != '{') return std::nullopt;
  ParsedCall call;
  std::string_view arguments, parameters;
  for (const JsonMember& member : members_of_compact_object(*json)) {
    if (member.key == "name") call.name = unquote_json(member.value).value_or(std::string());
    if (member.key == "arguments") arguments = member.value;
    if (member.key == "parameters") parameters = member.value;
  }
  if (arguments.empty()) arguments = parameters;
  call.arguments = arguments.empty() ? "{}" : arguments;
  if (call.arguments.front() == '"')
    call.arguments =
        compact_json(unquote_json(call.arguments).value_or(std::string())).value_or(std::string());
  if (call.name.empty() || call.arguments.empty() || call.arguments.front() != '{') return std::nullopt;
  return call;
}

std::size_t JsonExtent::scan(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string_ ? static_cast<unsigned char>(c) < 0x20 : c == '<') {
      status_ = Status::kBroken;
      return at;
    }
    if (in_string_) {
      in_string_ = is_escaped_ || c != '"';
      is_escaped_ = !is_escaped_ && c == '\\';
      continue;
    }
    in_string_ = c == '"';
    if (c == '{' || c == '[') ++depth_;
    if ((c == '}' || c == ']') && --depth_ == 0) {
      status_ = Status::kComplete;
      return at + 1;
    }
  }
  return text.size();
}

}  // namespace mererun
