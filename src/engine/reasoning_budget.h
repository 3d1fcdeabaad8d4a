#pragma once

#include <memory>

#include "decode/stop_rules.h"
#include "decode/token_constraint.h"
#include "tokenizer/tokenizer.h"

namespace mererun {

/// Closes reasoning by force: after `budget` tokens of it, only `</think>` is allowed. What else the output
/// may be is up to another constraint.
///
/// Thread-safety: one thread at a time; as its inner constraint.
class ReasoningBudget final : public TokenConstraint {
 public:
  struct Options {
    std::shared_ptr<const Tokenizer> tokenizer;
    TokenId reasoning_end = 0;  // the token `</think>`; the model may also spell it
    int vocabulary = 0;
    int budget = 1;  // >= 1
  };
  /// The output begins inside reasoning. `inner` may be null.
  ReasoningBudget(std::unique_ptr<TokenConstraint> inner, Options options);
  ReasoningBudget(const ReasoningBudget& other);
  ReasoningBudget& operator=(const ReasoningBudget&) = delete;

  const TokenMask* mask() override;
  void accept(TokenId id) override;
  bool is_complete() const override;
  std::unique_ptr<TokenConstraint> clone() const override;

 private:
  std::unique_ptr<TokenConstraint> inner_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  StreamMatcher end_;
  int left_;  // tokens of reasoning that may still come
  bool in_reasoning_ = true;
  TokenMask only_end_;
};

}  // namespace mererun
