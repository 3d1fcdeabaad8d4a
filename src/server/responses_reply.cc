#include "server/responses_reply.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;
using Kind = OutputPiece::Kind;

/// Output items from pieces, in order: neighbours of one kind of text are one item.
class OutputItems {
 public:
  OutputItems(std::string id, std::shared_ptr<const Tokenizer> tokenizer)
      : id_(std::move(id)), tokenizer_(std::move(tokenizer)) {}

  /// True if the piece goes on the last item.
  bool continues(const OutputPiece& piece) const {
    return piece.kind != Kind::kToolCall && !items_.empty() && last_kind_ == piece.kind;
  }
  /// An item without its content, as a stream announces it.
  Json begin(const OutputPiece& piece) {
    last_kind_ = piece.kind;
    const std::string suffix = id_ + "_" + std::to_string(items_.size());
    Json item;
    switch (piece.kind) {
      case Kind::kReasoning:
        item = {{"id", "rs_" + suffix},
                {"type", "reasoning"},
                {"summary", Json::array()},
                {"content", Json::array()}};
        break;
      case Kind::kContent:
        item = {
            {"id", "msg_" + suffix}, {"type", "message"}, {"role", "assistant"}, {"content", Json::array()}};
        break;
      case Kind::kToolCall:
        item = {{"id", "fc_" + suffix},
                {"type", "function_call"},
                {"call_id", "call_" + id_ + "_" + std::to_string(piece.index)},
                {"name", piece.name},
                {"arguments", ""}};
        break;
    }
    item["status"] = "in_progress";
    items_.push_back(item);
    return item;
  }
  void extend(const OutputPiece& piece) {
    Json& item = items_.back();
    if (piece.kind == Kind::kToolCall) {
      item["arguments"] = piece.arguments;
      return;
    }
    if (item["content"].empty()) item["content"].push_back(empty_part(piece.kind));
    Json& text = item["content"][0]["text"];
    text = text.get<std::string>() + piece.text;
  }
  static Json empty_part(Kind kind) {
    if (kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", ""}};
    return {
        {"type", "output_text"}, {"text", ""}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }
  void finish(std::string_view status) {
    if (!items_.empty()) items_.back()["status"] = status;
  }
  /// To the last item, which is a message.
  void add_logprobs(const Json& rows) {
    Json& list = items_.back()["content"][0]["logprobs"];
    list.insert(list.end(), rows.begin(), rows.end());
  }
  /// Of the answer's first message.
  void set_logprobs(std::span<const TokenLogprobs> tokens) {
    for (Json& item : items_) {
      if (item["type"] != "message" || item["content"].empty()) continue;
      item["content"][0]["logprobs"] = logprobs_json(*tokenizer_, tokens);
      return;
    }
  }
  const Json& last() const { return items_.back(); }
  int last_index() const { return static_cast<int>(items_.size()) - 1; }
  const Json& all() const { return items_; }
  bool empty() const { return items_.empty(); }
  Kind last_kind() const { return last_kind_; }

 private:
  std::string id_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Json items_ = Json::array();
  Kind last_kind_ = Kind::kContent;
};

class ResponsesReply : public Reply {
 public:
  ResponsesReply(ReplyContext context, const ApiRequest& request)
      : context_(std::move(context)),
        echo_(request.echo),
        logprobs_(request.logprobs.has_value()),
        items_(context_.id, context_.tokenizer) {}

 protected:
  Json response(std::string_view status) const {
    Json out{{"id", "resp_" + context_.id},
             {"object", "response"},
             {"created_at", context_.created},
             {"status", status},
             {"error", nullptr},
             {"incomplete_details", nullptr},
             {"model", context_.model},
             {"output", items_.all()},
             {"previous_response_id", nullptr},
             {"store", false},
             {"truncation", "disabled"},
             {"usage", nullptr}};
    if (echo_) out.update(*echo_);
    return out;
  }

  Json finished(const GenerateResult& result, const ReplyTimes& times) {
    const bool is_cut = result.finish == FinishReason::kLength;
    if (logprobs_) items_.set_logprobs(answer_logprobs(result.logprobs, result.reasoning_tokens));
    Json out = response(is_cut ? "incomplete" : "completed");
    if (is_cut) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    const auto prompt = static_cast<std::int64_t>(result.prompt_ids.size());
    const auto reply = static_cast<std::int64_t>(result.ids.size());
    out["usage"] = {{"input_tokens", prompt},
                    {"input_tokens_details", {{"cached_tokens", result.prefix.matched_tokens}}},
                    {"output_tokens", reply},
                    {"output_tokens_details", {{"reasoning_tokens", result.reasoning_tokens}}},
                    {"total_tokens", prompt + reply}};
    add_extensions(out, result, times);
    return out;
  }

  static std::string_view item_status(const GenerateResult& result) {
    return result.finish == FinishReason::kLength ? "incomplete" : "completed";
  }

  ReplyContext context_;
  std::shared_ptr<const Json> echo_;
  bool logprobs_;
  OutputItems items_;
};

class WholeResponsesReply final : public ResponsesReply {
 public:
  using ResponsesReply::ResponsesReply;

  void on_step(const Run&, const std::vector<OutputPiece>& pieces) override {
    for (const OutputPiece& piece : pieces) {
      if (!items_.continues(piece)) {
        items_.finish("completed");
        items_.begin(piece);
      }
      items_.extend(piece);
    }
  }
  void on_finish(const GenerateResult& result, const ReplyTimes& times) override {
    items_.finish(item_status(result));
    context_.exchange->respond(json_response(finished(result, times), std::move(context_.headers)));
  }
  void on_error(const ApiError& error) override { respond_error(context_, error, ApiDialect::kOpenAi); }
};

class StreamedResponsesReply final : public ResponsesReply {
 public:
  StreamedResponsesReply(ReplyContext context, const ApiRequest& request)
      : ResponsesReply(std::move(context), request) {
    context_.exchange->begin_stream(stream_head(std::move(context_.headers)), ": waiting\n\n");
    send("response.created", {{"response", response("in_progress")}});
    send("response.in_progress", {{"response", response("in_progress")}});
  }

  void on_step(const Run& run, const std::vector<OutputPiece>& pieces) override {
    for (const OutputPiece& piece : merged(pieces)) {
      Json rows = Json::array();
      if (piece.kind == Kind::kContent && logprobs_)
        rows = new_logprobs(answer_logprobs(run.output().logprobs(), run.output().reasoning_tokens()));
      write_piece(piece, rows);
    }
  }

  void on_finish(const GenerateResult& result, const ReplyTimes& times) override {
    if (is_open_ && items_.last_kind() == Kind::kContent && logprobs_)
      items_.add_logprobs(new_logprobs(answer_logprobs(result.logprobs, result.reasoning_tokens)));
    close_item(item_status(result));
    const bool is_cut = result.finish == FinishReason::kLength;
    send(is_cut ? "response.incomplete" : "response.completed", {{"response", finished(result, times)}});
    context_.exchange->end_stream();
  }

  void on_error(const ApiError& error) override {
    Json failed = response("failed");
    const Json body = error_body(error, ApiDialect::kOpenAi);
    failed["error"] = {{"code", "server_error"}, {"message", error.what()}};
    send("response.failed", {{"response", std::move(failed)}});
    send("error",
         {{"code", body["error"]["code"]}, {"message", error.what()}, {"param", body["error"]["param"]}});
    context_.exchange->end_stream();
  }

 private:
  void send(const std::string& type, Json members) {
    Json data{{"type", type}, {"sequence_number", sequence_++}};
    data.update(members);
    context_.exchange->write(named_event(type, data));
  }

  Json place() const {
    Json out{{"item_id", items_.last()["id"]}, {"output_index", items_.last_index()}};
    if (items_.last_kind() != Kind::kToolCall) out["content_index"] = 0;
    return out;
  }
  void send_at(const std::string& type, const Json& members) {
    Json data = place();
    data.update(members);
    send(type, std::move(data));
  }

  Json new_logprobs(std::span<const TokenLogprobs> answer) {
    return logprobs_json(*context_.tokenizer, take_unsent(answer, sent_logprobs_));
  }

  void write_piece(const OutputPiece& piece, const Json& logprobs) {
    if (!items_.continues(piece)) {
      close_item("completed");
      const Json item = items_.begin(piece);
      is_open_ = true;
      send("response.output_item.added", {{"output_index", items_.last_index()}, {"item", item}});
      if (piece.kind != Kind::kToolCall)
        send_at("response.content_part.added", {{"part", OutputItems::empty_part(piece.kind)}});
    }
    items_.extend(piece);
    switch (piece.kind) {
      case Kind::kReasoning: send_at("response.reasoning_text.delta", {{"delta", piece.text}}); break;
      case Kind::kContent:
        items_.add_logprobs(logprobs);
        send_at("response.output_text.delta", {{"delta", piece.text}, {"logprobs", logprobs}});
        break;
      case Kind::kToolCall:
        send_at("response.function_call_arguments.delta", {{"delta", piece.arguments}});
        break;
    }
  }

  void close_item(std::string_view status) {
    if (!is_open_) return;
    is_open_ = false;
    items_.finish(status);
    const Json& item = items_.last();
    switch (items_.last_kind()) {
      case Kind::kReasoning:
        send_at("response.reasoning_text.done", {{"text", item["content"][0]["text"]}});
        break;
      case Kind::kContent:
        send_at("response.output_text.done",
                {{"text", item["content"][0]["text"]}, {"logprobs", item["content"][0]["logprobs"]}});
        break;
      case Kind::kToolCall:
        send_at("response.function_call_arguments.done",
                {{"name", item["name"]}, {"arguments", item["arguments"]}});
        break;
    }
    if (items_.last_kind() != Kind::kToolCall)
      send_at("response.content_part.done", {{"part", item["content"][0]}});
    send("response.output_item.done", {{"output_index", items_.last_index()}, {"item", item}});
  }

  int sequence_ = 0;
  bool is_open_ = false;           // the last item
  std::size_t sent_logprobs_ = 0;  // of the answer
};

}  // namespace

std::unique_ptr<Reply> make_responses_reply(ReplyContext context, const ApiRequest& request) {
  if (request.stream) return std::make_unique<StreamedResponsesReply>(std::move(context), request);
  return std::make_unique<WholeResponsesReply>(std::move(context), request);
}

}  // namespace mererun
