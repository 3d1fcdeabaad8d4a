#include "server/chat_messages.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "server/api_error.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

std::string item(const std::string& where, std::size_t index) { return fmt::format("{}[{}]", where, index); }

Json template_call(const Json& call, const std::string& where) {
  Fields fields(call, where);
  static_cast<void>(fields.choice("type", {"function"}));
  const Json* function = fields.object("function");
  if (function == nullptr) fields.refuse("function", "an object");
  Fields inner(*function, fields.path("function"));
  Json out{{"name", inner.required_text("name")}, {"arguments", Json::object()}};
  const Json* arguments = inner.find("arguments");
  if (arguments != nullptr && arguments->is_object()) {
    out["arguments"] = *arguments;
  } else if (arguments != nullptr && !(arguments->is_string() && arguments->get<std::string>().empty())) {
    Json parsed;
    if (arguments->is_string()) {
      try {
        parsed = parse_body(arguments->get<std::string>());
      } catch (const ApiError&) {
        inner.refuse("arguments", "a JSON object as text");
      }
    }
    if (!parsed.is_object()) inner.refuse("arguments", "a JSON object as text");
    out["arguments"] = std::move(parsed);
  }
  Json wrapped{{"type", "function"}, {"function", std::move(out)}};
  if (const auto id = fields.text("id")) wrapped["id"] = *id;
  return wrapped;
}

Json assistant_message(Fields& fields, const std::string& where) {
  Json out{{"role", "assistant"}, {"content", ""}};
  const Json* content = fields.find("content");
  if (content != nullptr) out["content"] = joined_text(*content, fields.path("content"));
  if (auto reasoning = fields.text("reasoning_content")) out["reasoning_content"] = std::move(*reasoning);
  if (const Json* calls = fields.array("tool_calls"); calls != nullptr && !calls->empty()) {
    Json list = Json::array();
    for (std::size_t i = 0; i < calls->size(); ++i)
      list.push_back(template_call((*calls)[i], item(where + ".tool_calls", i)));
    out["tool_calls"] = std::move(list);
  } else if (content == nullptr && !out.contains("reasoning_content")) {
    fields.refuse("content", "a string, a list of parts, or tool_calls beside it");
  }
  return out;
}

Json template_message(const Json& message, const std::string& where) {
  Fields fields(message, where);
  const auto role = fields.choice("role", {"system", "developer", "user", "assistant", "tool"});
  if (!role) fields.refuse("role", "one of system, developer, user, assistant, tool");
  if (*role == "assistant") return assistant_message(fields, where);
  const Json* content = fields.find("content");
  if (content == nullptr) fields.refuse("content", "a string or a list of parts");
  Json out{{"role", *role == "developer" ? "system" : *role},
           {"content", joined_text(*content, fields.path("content"))}};
  if (*role == "tool") {
    if (auto id = fields.text("tool_call_id")) out["tool_call_id"] = std::move(*id);
  }
  if (auto name = fields.text("name")) out["name"] = std::move(*name);
  return out;
}

}  // namespace

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= 128 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") ==
             std::string_view::npos;
}

void refuse_part(const std::string& type, const std::string& where) {
  const bool is_media = type.find("image") != std::string::npos || type.find("video") != std::string::npos ||
                        type.find("audio") != std::string::npos || type.find("file") != std::string::npos ||
                        type == "document";
  throw ApiError::bad_field(
      where,
      is_media ? "a text part (this model is served without vision and reads text only)" : "a text part",
      excerpt(Json(type)));
}

std::string joined_text(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw ApiError::bad_field(where, "a string or a list of parts", excerpt(content));
  std::string out;
  for (std::size_t i = 0; i < content.size(); ++i) {
    Fields part(content[i], item(where, i));
    const std::string type = part.required_text("type");
    const bool is_refusal = type == "refusal";
    if (!is_refusal && type != "text" && type != "input_text" && type != "output_text")
      refuse_part(type, part.path("type"));
    out += part.required_text(is_refusal ? "refusal" : "text");
  }
  return out;
}

Json template_messages(const Json& messages, const std::string& where) {
  if (messages.empty()) throw ApiError::bad_field(where, "at least one message", "an empty list");
  Json out = Json::array();
  bool is_start = true;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Json message = template_message(messages[i], item(where, i));
    is_start = is_start && message["role"] == "system";
    if (is_start && !out.empty()) {
      out[0]["content"] =
          out[0]["content"].get<std::string>() + "\n\n" + message["content"].get<std::string>();
    } else {
      out.push_back(std::move(message));
    }
  }
  return out;
}

Json template_tools(const Json& tools, const std::string& where) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    Fields fields(tools[i], item(where, i));
    if (!fields.choice("type", {"function"})) fields.refuse("type", "\"function\"");
    const Json* function = fields.object("function");
    if (function == nullptr) fields.refuse("function", "an object");
    Fields inner(*function, fields.path("function"));
    const std::string name = inner.required_text("name");
    if (!is_tool_name(name)) inner.refuse("name", "1 to 128 letters, digits, '_', '-' or '.'");
    if (!names.insert(name).second) inner.refuse("name", "a name that no other tool has");
    static_cast<void>(inner.text("description"));
    static_cast<void>(inner.object("parameters"));
  }
  return tools;
}

}  // namespace mererun
