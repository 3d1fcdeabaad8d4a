#include "server/reply_parts.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/report_json.h"

namespace mererun {

using Json = nlohmann::ordered_json;

HttpResponse json_response(const Json& body, std::vector<HttpHeader> headers) {
  return {.headers = std::move(headers), .body = dump(body)};
}

void respond_error(ReplyContext& context, const ApiError& error, ApiDialect dialect) {
  HttpResponse response = error_response(error, dialect);
  std::move(context.headers.begin(), context.headers.end(), std::back_inserter(response.headers));
  context.exchange->respond(std::move(response));
}

HttpResponse stream_head(std::vector<HttpHeader> headers) {
  headers.push_back({"Cache-Control", "no-cache"});
  headers.push_back({"X-Accel-Buffering", "no"});
  return {.content_type = "text/event-stream; charset=utf-8", .headers = std::move(headers)};
}

std::string data_event(const Json& data) { return "data: " + dump(data) + "\n\n"; }

std::string named_event(std::string_view name, const Json& data) {
  return "event: " + std::string(name) + "\n" + data_event(data);
}

Json openai_envelope(const ReplyContext& context, std::string_view id_prefix, std::string_view object) {
  return {{"id", std::string(id_prefix) + context.id},
          {"object", object},
          {"created", context.created},
          {"model", context.model},
          {"system_fingerprint", context.system_fingerprint}};
}

void finish_openai_body(Json& body, Json choices, const GenerateResult& result, const ReplyTimes& times) {
  body["choices"] = std::move(choices);
  body["usage"] = usage_json(result);
  add_extensions(body, result, times);
}

Json usage_json(const GenerateResult& result) {
  const auto prompt = static_cast<std::int64_t>(result.prompt_ids.size());
  const auto reply = static_cast<std::int64_t>(result.ids.size());
  return {{"prompt_tokens", prompt},
          {"completion_tokens", reply},
          {"total_tokens", prompt + reply},
          {"prompt_tokens_details", {{"cached_tokens", result.prefix.matched_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", result.reasoning_tokens}}}};
}

void add_extensions(Json& body, const GenerateResult& result, const ReplyTimes& times) {
  body["acceleration"] = acceleration_json(result.acceleration);
  body["prefix_cache"] = prefix_json(result.prefix);
  body["timings"] = {{"queueSeconds", times.queue},
                     {"prefillSeconds", result.timings.prefill_seconds},
                     {"decodeSeconds", result.timings.decode_seconds},
                     {"ttftSeconds", times.first_token}};
}

std::string_view finish_reason(const GenerateResult& result) {
  if (result.finish == FinishReason::kStop && !result.tool_calls.empty())
    return name_of(FinishReason::kToolCalls);
  return name_of(result.finish);
}

Json token_logprob_json(const Tokenizer& tokenizer, const TokenLogprob& token) {
  const std::string_view bytes = tokenizer.token_bytes(token.id);
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return {{"token", std::string(bytes)},
          {"logprob", std::max(token.logprob, -9999.0)},
          {"bytes", std::move(list)}};
}

Json logprobs_json(const Tokenizer& tokenizer, std::span<const TokenLogprobs> tokens) {
  Json out = Json::array();
  for (const TokenLogprobs& token : tokens) {
    Json row = token_logprob_json(tokenizer, token.row.chosen);
    row["top_logprobs"] = Json::array();
    for (const TokenLogprob& t : token.row.top)
      row["top_logprobs"].push_back(token_logprob_json(tokenizer, t));
    out.push_back(std::move(row));
  }
  return out;
}

std::span<const TokenLogprobs> answer_logprobs(const std::vector<TokenLogprobs>& all,
                                               std::int64_t reasoning_tokens) {
  const auto skipped = std::min(all.size(), static_cast<std::size_t>(reasoning_tokens));
  return std::span(all).subspan(skipped);
}

std::span<const TokenLogprobs> take_unsent(std::span<const TokenLogprobs> all, std::size_t& sent) {
  const std::size_t from = std::min(std::exchange(sent, all.size()), all.size());
  return all.subspan(from);
}

std::vector<OutputPiece> merged(const std::vector<OutputPiece>& pieces) {
  std::vector<OutputPiece> out;
  for (const OutputPiece& piece : pieces) {
    if (!out.empty() && out.back().kind == piece.kind && piece.kind != OutputPiece::Kind::kToolCall)
      out.back().text += piece.text;
    else
      out.push_back(piece);
  }
  return out;
}

Json progress_json(const Run& run) {
  Json out{{"prompt", run.prompt().size()},
           {"done", run.prompt_done()},
           {"cached", run.prompt_reused()},
           {"generated", 0}};
  if (const Statistics* s = run.statistics()) {
    out["generated"] = s->generated();
    out["rounds"] = s->rounds();
    out["drafted"] = s->drafted();
    out["accepted"] = s->accepted();
  }
  return out;
}

}  // namespace mererun
