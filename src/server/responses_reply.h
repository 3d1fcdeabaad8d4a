#pragma once

#include <memory>

#include "server/reply_parts.h"

namespace mererun {

/// The answer to /v1/responses, whole or as its events.
std::unique_ptr<Reply> make_responses_reply(ReplyContext context, const ApiRequest& request);

}  // namespace mererun
