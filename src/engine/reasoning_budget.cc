#include "engine/reasoning_budget.h"

#include <utility>

namespace mererun {

ReasoningBudget::ReasoningBudget(std::unique_ptr<TokenConstraint> inner, Options options)
    : inner_(std::move(inner)),
      tokenizer_(std::move(options.tokenizer)),
      end_("</think>"),
      left_(options.budget),
      only_end_(options.vocabulary) {
  only_end_.allow(options.reasoning_end);
}

ReasoningBudget::ReasoningBudget(const ReasoningBudget& other)
    : inner_(other.inner_ ? other.inner_->clone() : nullptr),
      tokenizer_(other.tokenizer_),
      end_(other.end_),
      left_(other.left_),
      in_reasoning_(other.in_reasoning_),
      only_end_(other.only_end_) {}

const TokenMask* ReasoningBudget::mask() {
  if (in_reasoning_ && left_ == 0) return &only_end_;
  return inner_ ? inner_->mask() : nullptr;
}

void ReasoningBudget::accept(TokenId id) {
  if (in_reasoning_) {
    if (left_ > 0) --left_;
    for (const char byte : tokenizer_->token_bytes(id))
      if (end_.feed(byte)) in_reasoning_ = false;
  }
  if (inner_) inner_->accept(id);
}

bool ReasoningBudget::is_complete() const { return inner_ && inner_->is_complete(); }

std::unique_ptr<TokenConstraint> ReasoningBudget::clone() const {
  return std::make_unique<ReasoningBudget>(*this);
}

}  // namespace mererun
