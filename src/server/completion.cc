#include "server/completion.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api_error.h"
#include "server/output_format.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDefaultBudget = 16;  // of the form's inventor

void read_prompt(Fields& fields, GenerateRequest& request) {
  const std::string expected = "a string or a list of token ids";
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) fields.refuse("prompt", expected);
  const bool is_wrapped = prompt->is_array() && prompt->size() == 1 && !prompt->front().is_number();
  const Json& value = is_wrapped ? prompt->front() : *prompt;
  if (value.is_string()) {
    request.text = value.get<std::string>();
    return;
  }
  if (!value.is_array() || value.empty()) fields.refuse("prompt", expected);
  request.ids.emplace();
  for (const Json& id : value) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > INT32_MAX)
      fields.refuse("prompt", expected);
    request.ids->push_back(id.get<TokenId>());
  }
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

class CompletionReply : public Reply {
 public:
  CompletionReply(ReplyContext context, bool logprobs) : context_(std::move(context)), logprobs_(logprobs) {}

 protected:
  Json envelope() const { return openai_envelope(context_, "cmpl-", "text_completion"); }

  static Json choice(const std::string& text) {
    return {{"text", text}, {"index", 0}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  }

  /// The older form: parallel lists, offsets in characters of the text.
  Json listed_logprobs(std::span<const TokenLogprobs> tokens) {
    const Tokenizer& tokenizer = *context_.tokenizer;
    Json out{{"tokens", Json::array()},
             {"token_logprobs", Json::array()},
             {"top_logprobs", Json::array()},
             {"text_offset", Json::array()}};
    for (const TokenLogprobs& token : tokens) {
      const std::string text(tokenizer.token_bytes(token.id));
      out["tokens"].push_back(text);
      out["token_logprobs"].push_back(std::max(token.row.chosen.logprob, -9999.0));
      Json top = Json::object();
      for (const TokenLogprob& t : token.row.top)
        top[std::string(tokenizer.token_bytes(t.id))] = std::max(t.logprob, -9999.0);
      out["top_logprobs"].push_back(std::move(top));
      out["text_offset"].push_back(offset_);
      offset_ += characters(text);
    }
    return out;
  }

  ReplyContext context_;
  bool logprobs_;

 private:
  std::size_t offset_ = 0;
};

class WholeCompletionReply final : public CompletionReply {
 public:
  using CompletionReply::CompletionReply;

  void on_step(const Run&, const std::vector<OutputPiece>&) override {}
  void on_finish(const GenerateResult& result, const ReplyTimes& times) override {
    Json body = envelope();
    Json only = choice(result.content);
    if (logprobs_) only["logprobs"] = listed_logprobs(result.logprobs);
    only["finish_reason"] = finish_reason(result);
    finish_openai_body(body, Json::array({std::move(only)}), result, times);
    context_.exchange->respond(json_response(body, std::move(context_.headers)));
  }
  void on_error(const ApiError& error) override { respond_error(context_, error, ApiDialect::kOpenAi); }
};

class StreamedCompletionReply final : public CompletionReply {
 public:
  StreamedCompletionReply(ReplyContext context, bool logprobs, bool include_usage)
      : CompletionReply(std::move(context), logprobs), include_usage_(include_usage) {
    context_.exchange->begin_stream(stream_head(std::move(context_.headers)), ": waiting\n\n");
  }

  void on_step(const Run& run, const std::vector<OutputPiece>& pieces) override {
    for (const OutputPiece& piece : merged(pieces)) {
      Json only = choice(piece.text);
      if (logprobs_) only["logprobs"] = new_logprobs(run.output().logprobs());
      send(std::move(only));
    }
  }
  void on_finish(const GenerateResult& result, const ReplyTimes& times) override {
    Json last = choice("");
    last["finish_reason"] = finish_reason(result);
    if (logprobs_) last["logprobs"] = new_logprobs(result.logprobs);
    send(std::move(last));
    if (include_usage_) {
      Json usage = envelope();
      finish_openai_body(usage, Json::array(), result, times);
      context_.exchange->write(data_event(usage));
    }
    context_.exchange->write("data: [DONE]\n\n");
    context_.exchange->end_stream();
  }
  void on_error(const ApiError& error) override {
    context_.exchange->write(data_event(error_body(error, ApiDialect::kOpenAi)));
    context_.exchange->end_stream();
  }

 private:
  void send(Json only) {
    Json chunk = envelope();
    chunk["choices"] = Json::array({std::move(only)});
    context_.exchange->write(data_event(chunk));
  }
  Json new_logprobs(const std::vector<TokenLogprobs>& all) {
    const auto unsent = take_unsent(all, sent_);
    return unsent.empty() ? Json(nullptr) : listed_logprobs(unsent);
  }

  bool include_usage_;
  std::size_t sent_ = 0;
};

}  // namespace

ApiRequest parse_completion_request(const Json& body, const Engine& engine) {
  Fields fields(body, "");
  ApiRequest out;
  GenerateRequest& request = out.generate;
  check_model(fields, engine);
  read_prompt(fields, request);
  request.plain_output = true;
  request.max_tokens = fields.count("max_tokens").value_or(kDefaultBudget);
  if (const auto logprobs = fields.integer("logprobs", {0, 20}))
    request.logprobs = static_cast<int>(*logprobs);
  read_output_format(fields, engine, request);
  if (fields.integer("n", {1}).value_or(1) != 1) fields.refuse("n", "1");
  if (fields.integer("best_of", {1}).value_or(1) != 1) fields.refuse("best_of", "1");
  read_common(fields, engine, {.unserved = {"suffix", "echo"}, .silent = {"user"}}, out);
  return out;
}

std::unique_ptr<Reply> make_completion_reply(ReplyContext context, const ApiRequest& request) {
  const bool logprobs = request.logprobs.has_value();
  if (request.stream)
    return std::make_unique<StreamedCompletionReply>(std::move(context), logprobs, request.include_usage);
  return std::make_unique<WholeCompletionReply>(std::move(context), logprobs);
}

}  // namespace mererun
