#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "engine/run.h"
#include "server/http_message.h"
#include "server/reply.h"
#include "server/request_fields.h"

namespace mererun {

/// What every form of reply needs to know of its request.
struct ReplyContext {
  std::shared_ptr<HttpExchange> exchange;
  std::string id;            // without a prefix: "7f3a..."
  std::int64_t created = 0;  // seconds since 1970
  std::string model = {};
  std::string system_fingerprint = {};
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<HttpHeader> headers = {};  // of the response
};

HttpResponse json_response(const nlohmann::ordered_json& body, std::vector<HttpHeader> headers = {});
/// Answers a request whose reply has not begun.
void respond_error(ReplyContext& context, const ApiError& error, ApiDialect dialect);
/// Head of an event stream.
HttpResponse stream_head(std::vector<HttpHeader> headers);
/// "data: {...}\n\n"
std::string data_event(const nlohmann::ordered_json& data);
/// "event: <name>\ndata: {...}\n\n"
std::string named_event(std::string_view name, const nlohmann::ordered_json& data);

/// What OpenAI's chats and completions begin with: {id: <prefix><id>, object, created, model,
/// system_fingerprint}.
nlohmann::ordered_json openai_envelope(const ReplyContext& context, std::string_view id_prefix,
                                       std::string_view object);
/// Adds to an envelope what it ends with: choices, usage, extensions.
void finish_openai_body(nlohmann::ordered_json& body, nlohmann::ordered_json choices,
                        const GenerateResult& result, const ReplyTimes& times);

/// {prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details, completion_tokens_details}
nlohmann::ordered_json usage_json(const GenerateResult& result);
/// Adds `acceleration`, `prefix_cache` and `timings`.
void add_extensions(nlohmann::ordered_json& body, const GenerateResult& result, const ReplyTimes& times);
/// "stop", "length" or "tool_calls"
std::string_view finish_reason(const GenerateResult& result);

/// One token of a list of log-probabilities: {token, logprob, bytes}; never below -9999.
nlohmann::ordered_json token_logprob_json(const Tokenizer& tokenizer, const TokenLogprob& token);
/// [{token, logprob, bytes, top_logprobs}]
nlohmann::ordered_json logprobs_json(const Tokenizer& tokenizer, std::span<const TokenLogprobs> tokens);
/// The tokens of a result that are no reasoning.
std::span<const TokenLogprobs> answer_logprobs(const std::vector<TokenLogprobs>& all,
                                               std::int64_t reasoning_tokens);

/// The tokens behind the first `sent`, which then counts them too. A stream's log-probabilities: those of a
/// token whose text is held back travel with a later piece.
std::span<const TokenLogprobs> take_unsent(std::span<const TokenLogprobs> all, std::size_t& sent);

/// Joins neighbours of one kind of text.
std::vector<OutputPiece> merged(const std::vector<OutputPiece>& pieces);

/// {generated, rounds, drafted, accepted, prompt, cached} of a run so far.
nlohmann::ordered_json progress_json(const Run& run);

}  // namespace mererun
