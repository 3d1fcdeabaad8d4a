#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/request_fields.h"

namespace mererun {

/// POST /v1/responses, the part of it that needs nothing stored on the server. Errors: ApiError 400 or 404,
/// naming the field.
ApiRequest parse_responses_request(const nlohmann::ordered_json& body, const Engine& engine);

}  // namespace mererun
