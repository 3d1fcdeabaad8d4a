#include "server/messages_reply.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;
using Kind = OutputPiece::Kind;

std::string tool_id(const ReplyContext& context, const OutputPiece& call) {
  return "toolu_" + context.id + "_" + std::to_string(call.index);
}

/// Input of a call as an object; text that is none goes under one key, so that nothing is lost.
Json call_input(const OutputPiece& call) {
  Json input = Json::parse(call.arguments, nullptr, false);
  return input.is_object() ? input : Json{{"arguments", call.arguments}};
}

Json whole_block(const ReplyContext& context, const OutputPiece& piece) {
  switch (piece.kind) {
    case Kind::kReasoning: return {{"type", "thinking"}, {"thinking", piece.text}, {"signature", ""}};
    case Kind::kContent: return {{"type", "text"}, {"text", piece.text}};
    default:
      return {{"type", "tool_use"},
              {"id", tool_id(context, piece)},
              {"name", piece.name},
              {"input", call_input(piece)}};
  }
}

Json usage(std::int64_t prompt, std::int64_t cached, std::int64_t generated) {
  return {{"input_tokens", prompt - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", generated}};
}

Json usage_of(const GenerateResult& result) {
  return usage(static_cast<std::int64_t>(result.prompt_ids.size()), result.prefix.matched_tokens,
               static_cast<std::int64_t>(result.ids.size()));
}

class MessagesReply : public Reply {
 public:
  MessagesReply(ReplyContext context, std::vector<std::string> stops)
      : context_(std::move(context)), stops_(std::move(stops)) {}

 protected:
  Json message() const {
    return {{"id", "msg_" + context_.id}, {"type", "message"},        {"role", "assistant"},
            {"model", context_.model},    {"content", Json::array()}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr}};
  }

  /// {stop_reason, stop_sequence}
  Json ending(const GenerateResult& result) const {
    Json out{{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}};
    if (!result.tool_calls.empty() && result.finish != FinishReason::kLength) {
      out["stop_reason"] = "tool_use";
    } else if (result.finish == FinishReason::kLength) {
      out["stop_reason"] = "max_tokens";
    } else if (const std::string* stop = matched_stop(*context_.tokenizer, result.ids, stops_)) {
      out = {{"stop_reason", "stop_sequence"}, {"stop_sequence", *stop}};
    }
    return out;
  }

  ReplyContext context_;
  std::vector<std::string> stops_;
};

class WholeMessagesReply final : public MessagesReply {
 public:
  using MessagesReply::MessagesReply;

  void on_step(const Run&, const std::vector<OutputPiece>& pieces) override {
    pieces_.insert(pieces_.end(), pieces.begin(), pieces.end());
  }
  void on_finish(const GenerateResult& result, const ReplyTimes& times) override {
    Json body = message();
    for (const OutputPiece& piece : merged(pieces_)) body["content"].push_back(whole_block(context_, piece));
    body.update(ending(result));
    body["usage"] = usage_of(result);
    add_extensions(body, result, times);
    context_.exchange->respond(json_response(body, std::move(context_.headers)));
  }
  void on_error(const ApiError& error) override { respond_error(context_, error, ApiDialect::kAnthropic); }

 private:
  std::vector<OutputPiece> pieces_;
};

class StreamedMessagesReply final : public MessagesReply {
 public:
  StreamedMessagesReply(ReplyContext context, std::vector<std::string> stops)
      : MessagesReply(std::move(context), std::move(stops)) {
    context_.exchange->begin_stream(stream_head(std::move(context_.headers)),
                                    named_event("ping", {{"type", "ping"}}));
  }

  void on_step(const Run& run, const std::vector<OutputPiece>& pieces) override {
    if (!is_begun_) begin(static_cast<std::int64_t>(run.prompt().size()), run.prompt_reused());
    for (const OutputPiece& piece : merged(pieces)) write_piece(piece);
  }

  void on_finish(const GenerateResult& result, const ReplyTimes& times) override {
    close_block();
    Json delta{{"type", "message_delta"}, {"delta", ending(result)}, {"usage", usage_of(result)}};
    add_extensions(delta, result, times);
    send("message_delta", delta);
    send("message_stop", {{"type", "message_stop"}});
    context_.exchange->end_stream();
  }

  void on_error(const ApiError& error) override {
    send("error", error_body(error, ApiDialect::kAnthropic));
    context_.exchange->end_stream();
  }

 private:
  void send(std::string_view name, const Json& data) { context_.exchange->write(named_event(name, data)); }

  /// Once the prefix cache was asked: how much of the prompt it held is part of the first event.
  void begin(std::int64_t prompt, std::int64_t cached) {
    is_begun_ = true;
    Json start = message();
    start["usage"] = usage(prompt, cached, 0);
    send("message_start", {{"type", "message_start"}, {"message", std::move(start)}});
  }

  void write_piece(const OutputPiece& piece) {
    if (piece.kind == Kind::kToolCall || open_ != piece.kind) {
      close_block();
      Json block = whole_block(context_, piece);
      if (piece.kind == Kind::kToolCall) block["input"] = Json::object();
      if (piece.kind == Kind::kContent) block["text"] = "";
      if (piece.kind == Kind::kReasoning) block["thinking"] = "";
      send("content_block_start",
           {{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
      open_ = piece.kind;
    }
    Json delta;
    switch (piece.kind) {
      case Kind::kReasoning: delta = {{"type", "thinking_delta"}, {"thinking", piece.text}}; break;
      case Kind::kContent: delta = {{"type", "text_delta"}, {"text", piece.text}}; break;
      case Kind::kToolCall:
        delta = {{"type", "input_json_delta"}, {"partial_json", dump(call_input(piece))}};
        break;
    }
    send("content_block_delta",
         {{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
    if (piece.kind == Kind::kToolCall) close_block();
  }

  void close_block() {
    if (!open_) return;
    send("content_block_stop", {{"type", "content_block_stop"}, {"index", index_++}});
    open_.reset();
  }

  bool is_begun_ = false;
  std::optional<Kind> open_;
  int index_ = 0;
};

}  // namespace

const std::string* matched_stop(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                                const std::vector<std::string>& stops) {
  if (stops.empty()) return nullptr;
  // A reply ends with the token that completes a stop string, so its text has one exactly then.
  const std::string text = tokenizer.decode(ids, SpecialTokens::kSkip);
  const std::string* best = nullptr;
  std::size_t best_end = std::string::npos;
  for (const std::string& stop : stops) {
    const auto at = text.find(stop);
    if (at == std::string::npos) continue;
    const std::size_t end = at + stop.size();
    if (end < best_end || (end == best_end && stop.size() > best->size())) {
      best = &stop;
      best_end = end;
    }
  }
  return best;
}

std::unique_ptr<Reply> make_messages_reply(ReplyContext context, const ApiRequest& request) {
  if (request.stream) return std::make_unique<StreamedMessagesReply>(std::move(context), request.stops);
  return std::make_unique<WholeMessagesReply>(std::move(context), request.stops);
}

}  // namespace mererun
