#pragma once

#include <memory>

#include <nlohmann/json_fwd.hpp>

#include "server/reply_parts.h"

namespace mererun {

/// POST /v1/completions: raw text or ids, no template. Errors: ApiError 400 or 404, naming the field.
ApiRequest parse_completion_request(const nlohmann::ordered_json& body, const Engine& engine);

/// Its answer, whole or streamed.
std::unique_ptr<Reply> make_completion_reply(ReplyContext context, const ApiRequest& request);

}  // namespace mererun
