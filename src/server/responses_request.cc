#include "server/responses_request.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "server/api_error.h"
#include "server/chat_messages.h"
#include "server/chat_request.h"
#include "server/output_format.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

/// Builds chat messages from input items: what belongs to one turn of the assistant becomes one message.
class ChatBuilder {
 public:
  explicit ChatBuilder(std::optional<std::string> instructions) {
    if (instructions) messages_.push_back({{"role", "system"}, {"content", *instructions}});
  }

  void add(const Json& json, const std::string& where) {
    Fields item(json, where);
    const std::string type = item.text("type").value_or("message");
    if (type == "message") return add_message(item);
    if (type == "function_call") return add_call(item);
    if (type == "function_call_output") return add_output(item);
    if (type == "reasoning") return add_reasoning(item);
    item.refuse("type", "one of message, function_call, function_call_output, reasoning");
  }

  Json take() {
    close_turn();
    return std::move(messages_);
  }

 private:
  void add_message(Fields& item) {
    const std::string role = item.required_choice("role", {"system", "developer", "user", "assistant"});
    const Json* content = item.find("content");
    if (content == nullptr) item.refuse("content", "a string or a list of parts");
    std::string text = joined_text(*content, item.path("content"));
    if (role != "assistant") {
      close_turn();
      messages_.push_back({{"role", role}, {"content", std::move(text)}});
      return;
    }
    if (turn_.contains("content") || turn_.contains("tool_calls")) close_turn();
    turn_["content"] = std::move(text);
  }

  void add_call(Fields& item) {
    Json call{{"id", item.required_text("call_id")}, {"type", "function"}};
    call["function"] = {{"name", item.required_text("name")}, {"arguments", call_arguments(item)}};
    turn_["tool_calls"].push_back(std::move(call));
  }

  void add_output(Fields& item) {
    close_turn();
    const Json* output = item.find("output");
    if (output == nullptr) item.refuse("output", "a string or a list of parts");
    messages_.push_back({{"role", "tool"},
                         {"tool_call_id", item.required_text("call_id")},
                         {"content", joined_text(*output, item.path("output"))}});
  }

  void add_reasoning(Fields& item) {
    if (turn_.contains("content") || turn_.contains("tool_calls")) close_turn();
    std::string text;
    if (const Json* content = item.array("content")) {
      for (std::size_t i = 0; i < content->size(); ++i) {
        Fields part((*content)[i], item_path(item.path("content"), i));
        text += part.required_text("text");
      }
    }
    if (!text.empty()) turn_["reasoning_content"] = std::move(text);
  }

  void close_turn() {
    if (turn_.empty()) return;
    Json message{{"role", "assistant"}};
    message.update(turn_);
    messages_.push_back(std::move(message));
    turn_ = Json::object();
  }

  Json messages_ = Json::array();
  Json turn_ = Json::object();
};

Json read_input(Fields& fields) {
  ChatBuilder builder(fields.text("instructions"));
  const Json* input = fields.find("input");
  if (input == nullptr || !(input->is_string() || (input->is_array() && !input->empty())))
    fields.refuse("input", "a string or a list of items");
  if (input->is_string()) {
    builder.add({{"role", "user"}, {"content", *input}}, "input");
  } else {
    for (std::size_t i = 0; i < input->size(); ++i) builder.add((*input)[i], item_path("input", i));
  }
  return template_messages(builder.take(), "input");
}

/// The flat form of tools, as the nested one of chat completions.
Json read_tools(Fields& fields) {
  Json nested = Json::array();
  const Json* tools = fields.array("tools");
  if (tools == nullptr) return nested;
  std::set<std::string> names;
  for (std::size_t i = 0; i < tools->size(); ++i) {
    Fields tool((*tools)[i], item_path("tools", i));
    tool.required_choice("type", {"function"});
    Json function{{"name", read_tool_name(tool, names)}};
    if (auto description = tool.text("description")) function["description"] = std::move(*description);
    if (const Json* parameters = tool.object("parameters")) function["parameters"] = *parameters;
    nested.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return nested;
}

ToolChoice read_tool_choice(Fields& fields) {
  const Json* value = fields.find("tool_choice");
  if (value == nullptr || *value == "auto") return {};
  if (*value == "none") return {.kind = ToolChoice::Kind::kNone};
  if (*value == "required") return {.kind = ToolChoice::Kind::kRequired};
  if (!value->is_object())
    fields.refuse("tool_choice", "none, auto, required or {\"type\": \"function\", \"name\"}");
  Fields choice(*value, fields.path("tool_choice"));
  choice.required_choice("type", {"function"});
  return {.kind = ToolChoice::Kind::kNamed, .name = choice.required_text("name")};
}

/// text.format is response_format with the schema's members beside the type.
void read_text_format(Fields& fields, const Engine& engine, GenerateRequest& request) {
  const Json* text = fields.object("text");
  if (text == nullptr) return;
  Fields inner(*text, fields.path("text"));
  const Json* format = inner.object("format");
  if (format == nullptr) return;
  Json as_chat = *format;
  if (format->contains("schema")) as_chat = {{"type", format->value("type", "")}, {"json_schema", *format}};
  const Json wrapped{{"response_format", std::move(as_chat)}};
  Fields chat(wrapped, fields.path("text"));
  read_output_format(chat, engine, request);
}

void read_reasoning(Fields& fields, Json& arguments) {
  const Json* value = fields.object("reasoning");
  if (value == nullptr) return;
  Fields reasoning(*value, fields.path("reasoning"));
  if (const auto effort = reasoning.text("effort")) set_effort(*effort, arguments);
}

Json echo_of(const Json& body, const ToolChoice& choice, const SamplingOptions& sampling) {
  Json out = Json::object();
  for (const char* name : {"instructions", "max_output_tokens", "metadata", "reasoning", "text"})
    out[name] = body.contains(name) ? body[name] : Json(nullptr);
  if (out["metadata"].is_null()) out["metadata"] = Json::object();
  if (out["text"].is_null()) out["text"] = {{"format", {{"type", "text"}}}};
  out["tools"] = body.contains("tools") && body["tools"].is_array() ? body["tools"] : Json::array();
  out["tool_choice"] =
      body.contains("tool_choice") && !body["tool_choice"].is_null() ? body["tool_choice"] : Json("auto");
  out["parallel_tool_calls"] = choice.allows_several;
  out["temperature"] = sampling.temperature;
  out["top_p"] = sampling.top_p;
  return out;
}

}  // namespace

ApiRequest parse_responses_request(const Json& body, const Engine& engine) {
  Fields fields(body, "");
  ApiRequest out;
  GenerateRequest& request = out.generate;
  check_model(fields, engine);
  Json messages = read_input(fields);
  Json arguments = template_arguments(fields, engine);
  read_reasoning(fields, arguments);
  request.chat = chat_prompt(std::move(messages), std::move(arguments));
  request.max_tokens = fields.count("max_output_tokens");
  read_text_format(fields, engine, request);
  if (const auto top = fields.integer("top_logprobs", {0, 20})) request.logprobs = static_cast<int>(*top);
  Json tools = read_tools(fields);
  ToolChoice choice = read_tool_choice(fields);
  choice.allows_several = fields.boolean("parallel_tool_calls").value_or(true);
  apply_tools(engine, std::move(tools), choice, "tool_choice", request);
  static_cast<void>(fields.choice("truncation", {"disabled"}));
  read_common(fields, engine,
              {.unserved = {"previous_response_id", "conversation", "background", "prompt"},
               .silent = {"store", "metadata", "user", "include", "service_tier", "safety_identifier",
                          "prompt_cache_key"}},
              out);
  out.echo = std::make_shared<const Json>(echo_of(body, choice, request.sampling));
  return out;
}

}  // namespace mererun
