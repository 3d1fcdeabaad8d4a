#include "server/chat_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/constraints.h"
#include "server/api_error.h"
#include "server/chat_messages.h"
#include "server/output_format.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

ToolChoice read_tool_choice(Fields& fields) {
  const Json* value = fields.find("tool_choice");
  if (value == nullptr) return {};
  const std::string expected = "none, auto, required or {\"type\": \"function\", \"function\": {\"name\"}}";
  if (value->is_string()) {
    if (*value == "none") return {.kind = ToolChoice::Kind::kNone};
    if (*value == "auto") return {};
    if (*value == "required") return {.kind = ToolChoice::Kind::kRequired};
    fields.refuse("tool_choice", expected);
  }
  if (!value->is_object()) fields.refuse("tool_choice", expected);
  Fields inner(*value, fields.path("tool_choice"));
  inner.required_choice("type", {"function"});
  Fields named(inner.required_object("function"), inner.path("function"));
  return {.kind = ToolChoice::Kind::kNamed, .name = named.required_text("name")};
}

void read_logprobs(Fields& fields, GenerateRequest& request) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", {0, 20});
  if (top && *top > 0 && !wanted) fields.refuse("top_logprobs", "no such field unless logprobs is true");
  if (wanted) request.logprobs = static_cast<int>(top.value_or(0));
}

void read_tools(Fields& fields, const Engine& engine, GenerateRequest& request) {
  const Json* list = fields.array("tools");
  Json tools = list != nullptr ? template_tools(*list, fields.path("tools")) : Json::array();
  ToolChoice choice = read_tool_choice(fields);
  choice.allows_several = fields.boolean("parallel_tool_calls").value_or(true);
  apply_tools(engine, std::move(tools), choice, fields.path("tool_choice"), request);
}

}  // namespace

void apply_tools(const Engine& engine, Json tools, const ToolChoice& choice, const std::string& where,
                 GenerateRequest& request) {
  const bool is_named = choice.kind == ToolChoice::Kind::kNamed;
  const bool is_forced = is_named || choice.kind == ToolChoice::Kind::kRequired;
  if (is_forced && tools.empty()) throw ApiError::bad_field(where, "tools beside it", "none");
  const auto has_name = [&](const Json& tool) { return tool["function"]["name"] == choice.name; };
  if (is_named && std::none_of(tools.begin(), tools.end(), has_name))
    throw ApiError::bad_field(where, "the name of one of the tools", excerpt(Json(choice.name)));
  if (tools.empty() || choice.kind == ToolChoice::Kind::kNone) return;
  request.chat->tools = std::make_shared<const Json>(std::move(tools));
  request.stops_after_tool_call = !choice.allows_several;
  if (!is_forced) return;
  if (request.constraint != nullptr)
    throw ApiError::bad_field(where, "no other form of the output beside it", "both");
  try {
    request.constraint =
        tool_call_constraint(engine, *request.chat->tools,
                             {.name = is_named ? choice.name : "", .allows_several = choice.allows_several});
  } catch (const Error& error) {
    throw ApiError::in_field(where, error.what());
  }
}

ApiRequest parse_chat_request(const Json& body, const Engine& engine) {
  Fields fields(body, "");
  ApiRequest out;
  GenerateRequest& request = out.generate;
  check_model(fields, engine);
  const Json* messages = fields.array("messages");
  if (messages == nullptr) fields.refuse("messages", "a list of messages");
  request.chat = chat_prompt(template_messages(*messages, "messages"), template_arguments(fields, engine));
  const auto older = fields.count("max_tokens");
  const auto newer = fields.count("max_completion_tokens");
  request.max_tokens = newer ? newer : older;
  read_logprobs(fields, request);
  read_output_format(fields, engine, request);
  read_tools(fields, engine, request);
  if (fields.integer("n", {1}).value_or(1) != 1) fields.refuse("n", "1");
  if (const Json* kinds = fields.array("modalities"); kinds != nullptr && *kinds != Json::array({"text"}))
    fields.refuse("modalities", "[\"text\"]");
  read_common(fields, engine,
              {.unserved = {"audio", "functions", "function_call", "prediction", "best_of", "suffix", "echo",
                            "web_search_options"},
               .silent = {"user", "store", "metadata", "service_tier", "safety_identifier"}},
              out);
  return out;
}

}  // namespace mererun
