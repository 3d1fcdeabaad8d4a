#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "server/request_fields.h"

namespace mererun {

/// Which calls a reply may or must make.
struct ToolChoice {
  enum class Kind { kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name = {};       // of kNamed
  bool allows_several = true;  // calls in one reply
};

/// Puts tools into the request, as `choice` says: none hides them, required and named constrain the output,
/// and where several calls are not allowed the first ends the reply. `tools` as template_tools gives them;
/// `where` is the name of the choice's field. Errors: ApiError 400 for a choice without its tool.
void apply_tools(const Engine& engine, nlohmann::ordered_json tools, const ToolChoice& choice,
                 const std::string& where, GenerateRequest& request);

/// POST /v1/chat/completions. Errors: ApiError 400 or 404, naming the field.
ApiRequest parse_chat_request(const nlohmann::ordered_json& body, const Engine& engine);

}  // namespace mererun
