#include "server/chat_messages.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/api_error.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

Json template_call(const Json& call, const std::string& where) {
  Fields fields(call, where);
  static_cast<void>(fields.choice("type", {"function"}));
  Fields inner(fields.required_object("function"), fields.path("function"));
  Json out{{"name", inner.required_text("name")}, {"arguments", call_arguments(inner)}};
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
      list.push_back(template_call((*calls)[i], item_path(where + ".tool_calls", i)));
    out["tool_calls"] = std::move(list);
  } else if (content == nullptr && !out.contains("reasoning_content")) {
    fields.refuse("content", "a string, a list of parts, or tool_calls beside it");
  }
  return out;
}

Json template_message(const Json& message, const std::string& where) {
  Fields fields(message, where);
  const std::string role =
      fields.required_choice("role", {"system", "developer", "user", "assistant", "tool"});
  if (role == "assistant") return assistant_message(fields, where);
  const Json* content = fields.find("content");
  if (content == nullptr) fields.refuse("content", "a string or a list of parts");
  Json out{{"role", role == "developer" ? "system" : role},
           {"content", joined_text(*content, fields.path("content"))}};
  if (role == "tool") {
    if (auto id = fields.text("tool_call_id")) out["tool_call_id"] = std::move(*id);
  }
  if (auto name = fields.text("name")) out["name"] = std::move(*name);
  return out;
}

}  // namespace

Json call_arguments(Fields& call) {
  const Json* arguments = call.find("arguments");
  if (arguments == nullptr) return Json::object();
  if (arguments->is_object()) return *arguments;
  const auto refuse = [&] { call.refuse("arguments", "a JSON object as text"); };
  if (!arguments->is_string()) refuse();
  const auto& text = arguments->get_ref<const std::string&>();
  if (text.empty()) return Json::object();
  Json parsed;
  try {
    parsed = parse_body(text);
  } catch (const ApiError&) {
    refuse();
  }
  if (!parsed.is_object()) refuse();
  return parsed;
}

std::string read_tool_name(Fields& tool, std::set<std::string>& names) {
  std::string name = tool.required_text("name");
  const bool is_name =
      !name.empty() && name.size() <= 128 &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") ==
          std::string::npos;
  if (!is_name) tool.refuse("name", "1 to 128 letters, digits, '_', '-' or '.'");
  if (!names.insert(name).second) tool.refuse("name", "a name that no other tool has");
  return name;
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
    Fields part(content[i], item_path(where, i));
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
    Json message = template_message(messages[i], item_path(where, i));
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
    Fields fields(tools[i], item_path(where, i));
    fields.required_choice("type", {"function"});
    Fields inner(fields.required_object("function"), fields.path("function"));
    read_tool_name(inner, names);
    static_cast<void>(inner.text("description"));
    static_cast<void>(inner.object("parameters"));
  }
  return tools;
}

}  // namespace mererun
