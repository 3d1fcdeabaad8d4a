#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decode/generation.h"
#include "decode/stop_rules.h"
#include "engine/output_parser.h"
#include "engine/request.h"
#include "tokenizer/detokenizer.h"

namespace mererun {

/// Receives output as it becomes final. Called on the thread that computes.
using PieceListener = std::function<void(const OutputPiece&)>;

/// Turns the target's choices into text: bytes to characters, stop rules, then reasoning, content and tool
/// calls.
///
/// Thread-safety: one thread at a time.
class TextSink final : public ChoiceSink {
 public:
  struct Options {
    std::shared_ptr<const Tokenizer> tokenizer;
    StopOptions stop;
    OutputParserOptions parser;
    std::optional<int> logprobs;
    PieceListener listener;
  };
  explicit TextSink(Options options);

  ChoiceOutcome on_choice(const TargetChoice& choice) override;
  bool wants_logits() const override { return options_.logprobs.has_value(); }

  /// Ends a request that no choice ended (cancelled, error): what is held comes out.
  void close(FinishReason reason);

  const std::string& reasoning() const { return reasoning_; }
  const std::string& content() const { return content_; }
  const std::vector<OutputPiece>& tool_calls() const { return tool_calls_; }
  const std::vector<TokenLogprobs>& logprobs() const { return logprobs_; }
  std::vector<TokenLogprobs> take_logprobs() { return std::move(logprobs_); }
  std::int64_t reasoning_tokens() const { return rules_.num_reasoning_tokens(); }

 private:
  void release(std::string_view text);
  void finish_text(FinishReason reason);
  void publish();

  Options options_;
  Detokenizer detokenizer_;
  StopRules rules_;
  OutputParser parser_;
  std::vector<OutputPiece> pieces_;
  std::string reasoning_, content_;
  std::vector<OutputPiece> tool_calls_;
  std::vector<TokenLogprobs> logprobs_;
  bool closed_ = false;
};

}  // namespace mererun
