#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/request_fields.h"

namespace mererun {

/// POST /v1/messages, the Anthropic form. Errors: ApiError 400 or 404, naming the field.
ApiRequest parse_messages_request(const nlohmann::ordered_json& body, const Engine& engine);

/// POST /v1/messages/count_tokens: the same without a budget.
ApiRequest parse_count_request(const nlohmann::ordered_json& body, const Engine& engine);

}  // namespace mererun
