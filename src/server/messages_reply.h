#pragma once

#include <memory>

#include "server/reply_parts.h"

namespace mererun {

/// The answer to /v1/messages, whole or as Anthropic's events.
std::unique_ptr<Reply> make_messages_reply(ReplyContext context, const ApiRequest& request);

/// The stop string that ended a reply of these ids; null when none did.
const std::string* matched_stop(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                                const std::vector<std::string>& stops);

}  // namespace mererun
