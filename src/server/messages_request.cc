#include "server/messages_request.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "server/api_error.h"
#include "server/chat_messages.h"
#include "server/chat_request.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

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
    read_block(content[i], item_path(where, i), is_assistant, parts);
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
    Fields message((*list)[i], item_path("messages", i));
    const std::string role = message.required_choice("role", {"user", "assistant", "system"});
    const Json* content = message.find("content");
    if (content == nullptr) message.refuse("content", "a string or a list of blocks");
    if (role == "system") {
      append_system(system, joined_text(*content, message.path("content")));
      continue;
    }
    const bool is_assistant = role == "assistant";
    add_message(read_content(*content, message.path("content"), is_assistant), is_assistant, messages);
  }
  if (messages.empty()) fields.refuse("messages", "a message of the user");
  if (!system.empty()) messages.insert(messages.begin(), Json{{"role", "system"}, {"content", system}});
  return messages;
}

Json read_tools(Fields& fields) {
  Json out = Json::array();
  const Json* tools = fields.array("tools");
  if (tools == nullptr) return out;
  std::set<std::string> names;
  for (std::size_t i = 0; i < tools->size(); ++i) {
    Fields tool((*tools)[i], item_path("tools", i));
    static_cast<void>(tool.choice("type", {"custom"}));
    Json function{{"name", read_tool_name(tool, names)}};
    const Json& schema = tool.required_object("input_schema");
    if (auto description = tool.text("description")) function["description"] = std::move(*description);
    function["parameters"] = schema;
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

ToolChoice read_tool_choice(Fields& fields) {
  const Json* value = fields.object("tool_choice");
  if (value == nullptr) return {};
  Fields choice(*value, fields.path("tool_choice"));
  const std::string type = choice.required_choice("type", {"auto", "any", "tool", "none"});
  ToolChoice out;
  out.allows_several = !choice.boolean("disable_parallel_tool_use").value_or(false);
  if (type == "none") out.kind = ToolChoice::Kind::kNone;
  if (type == "any") out.kind = ToolChoice::Kind::kRequired;
  if (type == "tool") {
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
  const std::string type = thinking.required_choice("type", {"enabled", "disabled", "adaptive"});
  if (type == "disabled") return;
  arguments["enable_thinking"] = true;
  request.reasoning_budget = thinking.count("budget_tokens");
  if (type == "enabled" && !request.reasoning_budget)
    thinking.refuse("budget_tokens", "an integer of at least 1");
}

ApiRequest parse(const Json& body, const Engine& engine, bool needs_budget) {
  Fields fields(body, "");
  ApiRequest out;
  GenerateRequest& request = out.generate;
  check_model(fields, engine);
  Json messages = read_messages(fields);
  Json arguments = template_arguments(fields, engine);
  read_thinking(fields, arguments, request);
  request.chat = chat_prompt(std::move(messages), std::move(arguments));
  request.max_tokens = fields.count("max_tokens");
  if (needs_budget && !request.max_tokens) fields.refuse("max_tokens", "an integer of at least 1");
  Json tools = read_tools(fields);
  apply_tools(engine, std::move(tools), read_tool_choice(fields), "tool_choice", request);
  read_common(fields, engine,
              {.stop = "stop_sequences",
               .unserved = {"container", "mcp_servers"},
               .silent = {"metadata", "service_tier", "cache_control"}},
              out);
  return out;
}

}  // namespace

ApiRequest parse_messages_request(const Json& body, const Engine& engine) {
  return parse(body, engine, true);
}
ApiRequest parse_count_request(const Json& body, const Engine& engine) { return parse(body, engine, false); }

}  // namespace mererun
