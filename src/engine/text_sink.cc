#include "engine/text_sink.h"

#include <utility>

namespace mererun {

TextSink::TextSink(Options options)
    : options_(std::move(options)),
      detokenizer_(options_.tokenizer, SpecialTokens::kSkip),
      rules_(options_.stop),
      parser_(options_.parser) {}

ChoiceOutcome TextSink::on_choice(const TargetChoice& choice) {
  const std::string text = detokenizer_.append(choice.id);
  const StopStep step =
      rules_.accept({.id = choice.id, .text = text, .completes_constraint = choice.completes_constraint});
  if (step.is_emitted && options_.logprobs)
    logprobs_.push_back({choice.id, row_logprobs(choice.logits, choice.id, *options_.logprobs)});
  release(step.text);
  if (step.finish) {
    if (!step.is_cut) {
      // A character that never came to its end shows as U+FFFD, after what the rules still hold.
      release(rules_.release_held());
      release(detokenizer_.flush());
    }
    finish_text(*step.finish);
  }
  return {.is_emitted = step.is_emitted, .finish = step.finish};
}

void TextSink::close(FinishReason reason) {
  if (closed_) return;
  release(rules_.release_held());
  release(detokenizer_.flush());
  finish_text(reason);
}

void TextSink::release(std::string_view text) {
  if (text.empty()) return;
  parser_.feed(text, pieces_);
  publish();
}

void TextSink::finish_text(FinishReason reason) {
  closed_ = true;
  parser_.finish(reason == FinishReason::kLength, pieces_);
  publish();
}

void TextSink::publish() {
  for (const OutputPiece& piece : pieces_) {
    switch (piece.kind) {
      case OutputPiece::Kind::kReasoning: reasoning_ += piece.text; break;
      case OutputPiece::Kind::kContent: content_ += piece.text; break;
      case OutputPiece::Kind::kToolCall: tool_calls_.push_back(piece); break;
    }
    if (options_.listener) options_.listener(piece);
  }
  pieces_.clear();
}

}  // namespace mererun
