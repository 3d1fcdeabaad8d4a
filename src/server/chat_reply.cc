#include "server/chat_reply.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

Json tool_call_json(const std::string& id, const OutputPiece& call) {
  return {{"id", "call_" + id + "_" + std::to_string(call.index)},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

Json envelope(const ReplyContext& context, std::string_view object) {
  return openai_envelope(context, "chatcmpl-", object);
}

class WholeChatReply final : public Reply {
 public:
  WholeChatReply(ReplyContext context, bool logprobs) : context_(std::move(context)), logprobs_(logprobs) {}

  void on_step(const Run&, const std::vector<OutputPiece>&) override {}

  void on_finish(const GenerateResult& result, const ReplyTimes& times) override {
    Json message{{"role", "assistant"}, {"content", result.content}};
    if (result.content.empty() && !result.tool_calls.empty()) message["content"] = nullptr;
    if (!result.reasoning.empty()) message["reasoning_content"] = result.reasoning;
    if (!result.tool_calls.empty()) {
      message["tool_calls"] = Json::array();
      for (const OutputPiece& call : result.tool_calls)
        message["tool_calls"].push_back(tool_call_json(context_.id, call));
    }
    Json choice{{"index", 0},
                {"message", std::move(message)},
                {"logprobs", nullptr},
                {"finish_reason", finish_reason(result)}};
    if (logprobs_) {
      const auto answer = answer_logprobs(result.logprobs, result.reasoning_tokens);
      choice["logprobs"] = {{"content", logprobs_json(*context_.tokenizer, answer)}};
    }
    Json body = envelope(context_, "chat.completion");
    finish_openai_body(body, Json::array({std::move(choice)}), result, times);
    context_.exchange->respond(json_response(body, std::move(context_.headers)));
  }

  void on_error(const ApiError& error) override { respond_error(context_, error, ApiDialect::kOpenAi); }

 private:
  ReplyContext context_;
  bool logprobs_;
};

class StreamedChatReply final : public Reply {
 public:
  StreamedChatReply(ReplyContext context, bool logprobs, const ApiRequest& request)
      : context_(std::move(context)),
        logprobs_(logprobs),
        include_usage_(request.include_usage),
        include_progress_(request.include_progress) {
    context_.exchange->begin_stream(stream_head(std::move(context_.headers)), ": waiting\n\n");
    send(chunk({{"role", "assistant"}, {"content", ""}}));
  }

  void on_step(const Run& run, const std::vector<OutputPiece>& pieces) override {
    std::vector<Json> chunks;
    for (const OutputPiece& piece : merged(pieces)) {
      switch (piece.kind) {
        case OutputPiece::Kind::kReasoning:
          chunks.push_back(chunk({{"reasoning_content", piece.text}}));
          break;
        case OutputPiece::Kind::kContent: chunks.push_back(chunk({{"content", piece.text}})); break;
        case OutputPiece::Kind::kToolCall: chunks.push_back(chunk(call_delta(piece))); break;
      }
    }
    if (chunks.empty() && include_progress_) chunks.push_back(chunk(Json::object()));
    if (chunks.empty()) return;
    if (logprobs_) {
      const auto answer = answer_logprobs(run.output().logprobs(), run.output().reasoning_tokens());
      chunks.back()["choices"][0]["logprobs"] = new_logprobs(answer);
    }
    if (include_progress_) chunks.back()["progress"] = progress_json(run);
    for (const Json& each : chunks) send(each);
  }

  void on_finish(const GenerateResult& result, const ReplyTimes& times) override {
    Json last = chunk(Json::object());
    last["choices"][0]["finish_reason"] = finish_reason(result);
    if (logprobs_)
      last["choices"][0]["logprobs"] =
          new_logprobs(answer_logprobs(result.logprobs, result.reasoning_tokens));
    send(last);
    if (include_usage_) {
      Json usage = envelope(context_, "chat.completion.chunk");
      finish_openai_body(usage, Json::array(), result, times);
      send(usage);
    }
    context_.exchange->write("data: [DONE]\n\n");
    context_.exchange->end_stream();
  }

  void on_error(const ApiError& error) override {
    send(error_body(error, ApiDialect::kOpenAi));
    context_.exchange->end_stream();
  }

 private:
  void send(const Json& data) { context_.exchange->write(data_event(data)); }

  Json chunk(Json delta) const {
    Json out = envelope(context_, "chat.completion.chunk");
    out["choices"] = Json::array(
        {{{"index", 0}, {"delta", std::move(delta)}, {"logprobs", nullptr}, {"finish_reason", nullptr}}});
    if (include_usage_) out["usage"] = nullptr;
    return out;
  }

  Json call_delta(const OutputPiece& piece) const {
    Json call{{"index", piece.index}};
    call.update(tool_call_json(context_.id, piece));
    return {{"tool_calls", Json::array({std::move(call)})}};
  }

  /// What no chunk has carried yet.
  Json new_logprobs(std::span<const TokenLogprobs> answer) {
    const auto unsent = take_unsent(answer, sent_logprobs_);
    if (unsent.empty()) return nullptr;
    return {{"content", logprobs_json(*context_.tokenizer, unsent)}};
  }

  ReplyContext context_;
  bool logprobs_, include_usage_, include_progress_;
  std::size_t sent_logprobs_ = 0;  // of the answer
};

}  // namespace

std::unique_ptr<Reply> make_chat_reply(ReplyContext context, const ApiRequest& request) {
  const bool logprobs = request.logprobs.has_value();
  if (request.stream) return std::make_unique<StreamedChatReply>(std::move(context), logprobs, request);
  return std::make_unique<WholeChatReply>(std::move(context), logprobs);
}

}  // namespace mererun
