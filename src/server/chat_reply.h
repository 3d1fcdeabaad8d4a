#pragma once

#include <memory>

#include "server/reply_parts.h"

namespace mererun {

/// The answer to /v1/chat/completions, whole or streamed. A streamed one sends its head and the first chunk
/// when made.
std::unique_ptr<Reply> make_chat_reply(ReplyContext context, const ApiRequest& request);

}  // namespace mererun
