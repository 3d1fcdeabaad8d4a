#include "server/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api_error.h"
#include "server/chat_messages.h"
#include "server/chat_request.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

std::string item(const std::string& where, std::size_t index) { return fmt::format("{}[{}]", where, index); }

/// One message in the making: its text and what else its blocks hold.
struct Parts {
  std::string text;
  std::string thinking;
  Json calls = Json::array();
  Json results = Json::array();  // messages of role "tool"
};

void read_tool_use(Fields& block, Parts& parts) {
  const Json* input = block.object("input");
  Json call{{"id", block.required_text("id")}, {"type", "function"}};
  call["function"] = {{"name", block.required_text("name")},
                      {"arguments", input != nullptr ? *input : Json::object()}};
  parts.calls.push_back(std::move(call));
}

void read_tool_result(Fields& block, Parts& parts) {
  const Json* content = block.find("content");
  std::string text = content != nullptr ? joined_text(*content, block.path("content")) : std::string();
  if (block.boolean("is_error").value_or(false)) text = "Error: " + text;
  parts.results.push_back(
      {{"role", "tool"}, {"tool_call_id", block.required_text("tool_use_id")}, {"content", std::move(text)}});
}

void read_block(const Json& json, const std::string& where, bool is_assistant, Parts& parts) {
  Fields block(json, where);
  const std::string type = block.required_text("type");
  if (type == "text") {
    parts.text += block.required_text("text");
  } else if (is_assistant && type == "thinking") {
    parts.thinking += block.required_text("thinking");
  } else if (is_assistant && type == "redacted_thinking") {
    return;  // nothing that this model could read
  } else if (is_assistant && type == "tool_use") {
    read_tool_use(block, parts);
  } else if (!is_assistant && type == "tool_result") {
    read_tool_result(block, parts);
  } else {
    refuse_part(type, block.path("type"));
  }
}

Parts read_content(const Json& content, const std::string& where, bool is_assistant) {
  Parts parts;
  if (content.is_string()) {
    parts.text = content.get<std::string>();
    return parts;
  }
  if (!content.is_array()) throw ApiError::bad_field(where, "a string or a list of blocks", excerpt(content));
  for (std::size_t i = 0; i < content.size(); ++i)
    read_block(content[i], item(where, i), is_assistant, parts);
  return parts;
}

void add_message(Parts parts, bool is_assistant, Json& messages) {
  if (is_assistant) {
    Json message{{"role", "assistant"}, {"content", std::move(parts.text)}};
    if (!parts.thinking.empty()) message["reasoning_content"] = std::move(parts.thinking);
    if (!parts.calls.empty()) message["tool_calls"] = std::move(parts.calls);
    messages.push_back(std::move(message));
    return;
  }
  const bool has_results = !parts.results.empty();
  for (Json& result : parts.results) messages.push_back(std::move(result));
  if (!parts.text.empty() || !has_results)
    messages.push_back({{"role", "user"}, {"content", std::move(parts.text)}});
}

void append_system(std::string& system, const std::string& text) {
  if (!system.empty() && !text.empty()) system += "\n\n";
  system += text;
}

/// System text first, wherever the list has it.
Json read_messages(Fields& fields) {
  std::string system;
  if (const Json* text = fields.find("system")) system = joined_text(*text, fields.path("system"));
  const Json* list = fields.array("messages");
  if (list == nullptr || list->empty()) fields.refuse("messages", "a list of at least one message");
  Json messages = Json::array();
  for (std::size_t i = 0; i < list->size(); ++i) {
    Fields message((*list)[i], item("messages", i));
    const auto role = message.choice("role", {"user", "assistant", "system"});
    if (!role) message.refuse("role", "one of user, assistant, system");
    const Json* content = message.find("content");
    if (content == nullptr) message.refuse("content", "a string or a list of blocks");
    if (*role == "system") {
      append_system(system, joined_text(*content, message.path("content")));
      continue;
    }
    add_message(read_content(*content, message.path("content"), *role == "assistant"), *role == "assistant",
                messages);
  }
  if (messages.empty()) fields.refuse("messages", "a message of the user");
  if (!system.empty()) messages.insert(messages.begin(), Json{{"role", "system"}, {"content", system}});
  return messages;
}

Json read_tools(Fields& fields) {
  Json out = Json::array();
  const Json* tools = fields.array("tools");
  if (tools == nullptr) return out;
  for (std::size_t i = 0; i < tools->size(); ++i) {
    Fields tool((*tools)[i], item("tools", i));
    static_cast<void>(tool.choice("type", {"custom"}));
    const std::string name = tool.required_text("name");
    if (!is_tool_name(name)) tool.refuse("name", "1 to 128 letters, digits, '_', '-' or '.'");
    for (const Json& other : out)
      if (other["function"]["name"] == name) tool.refuse("name", "a name that no other tool has");
    const Json* schema = tool.object("input_schema");
    if (schema == nullptr) tool.refuse("input_schema", "an object");
    Json function{{"name", name}};
    if (auto description = tool.text("description")) function["description"] = std::move(*description);
    function["parameters"] = *schema;
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

ToolChoice read_tool_choice(Fields& fields) {
  const Json* value = fields.object("tool_choice");
  if (value == nullptr) return {};
  Fields choice(*value, fields.path("tool_choice"));
  const auto type = choice.choice("type", {"auto", "any", "tool", "none"});
  if (!type) choice.refuse("type", "one of auto, any, tool, none");
  ToolChoice out;
  out.allows_several = !choice.boolean("disable_parallel_tool_use").value_or(false);
  if (*type == "none") out.kind = ToolChoice::Kind::kNone;
  if (*type == "any") out.kind = ToolChoice::Kind::kRequired;
  if (*type == "tool") {
    out.kind = ToolChoice::Kind::kNamed;
    out.name = choice.required_text("name");
  }
  return out;
}

/// Without `thinking` there is none.
void read_thinking(Fields& fields, Json& arguments, GenerateRequest& request) {
  arguments["enable_thinking"] = false;
  const Json* value = fields.object("thinking");
  if (value == nullptr) return;
  Fields thinking(*value, fields.path("thinking"));
  const auto type = thinking.choice("type", {"enabled", "disabled", "adaptive"});
  if (!type) thinking.refuse("type", "one of enabled, disabled, adaptive");
  if (*type == "disabled") return;
  arguments["enable_thinking"] = true;
  const auto budget = thinking.integer("budget_tokens", {1});
  if (*type == "enabled" && !budget) thinking.refuse("budget_tokens", "an integer of at least 1");
  if (budget) request.reasoning_budget = static_cast<int>(std::min<std::int64_t>(*budget, INT32_MAX));
}

ApiRequest parse(const Json& body, const Engine& engine, bool needs_budget) {
  Fields fields(body, "");
  ApiRequest out;
  GenerateRequest& request = out.generate;
  check_model(fields, engine);
  request.chat.emplace();
  request.chat->messages = std::make_shared<const Json>(read_messages(fields));
  Json arguments = template_arguments(fields, engine);
  read_thinking(fields, arguments, request);
  request.chat->template_arguments = std::make_shared<const Json>(std::move(arguments));
  const auto budget = fields.integer("max_tokens", {1});
  if (needs_budget && !budget) fields.refuse("max_tokens", "an integer of at least 1");
  if (budget) request.max_tokens = static_cast<int>(std::min<std::int64_t>(*budget, INT32_MAX));
  read_sampling(fields, engine, request);
  read_stop(fields, "stop_sequences", request);
  Json tools = read_tools(fields);
  apply_tools(engine, std::move(tools), read_tool_choice(fields), "tool_choice", request);
  read_speculation(fields, request);
  read_stream(fields, out);
  refuse_unserved(fields, {"container", "mcp_servers"});
  for (const char* name : {"metadata", "service_tier", "cache_control"}) static_cast<void>(fields.find(name));
  out.ignored = fields.unread();
  return out;
}

}  // namespace

ApiRequest parse_messages_request(const Json& body, const Engine& engine) {
  return parse(body, engine, true);
}
ApiRequest parse_count_request(const Json& body, const Engine& engine) { return parse(body, engine, false); }

}  // namespace mererun
