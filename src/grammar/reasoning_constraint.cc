#include "grammar/reasoning_constraint.h"

#include <algorithm>
#include <utility>

namespace mererun {
namespace {

constexpr std::size_t kMostLineEnds = 2;

bool is_line_ends(std::string_view text) { return text.find_first_not_of('\n') == std::string_view::npos; }

}  // namespace

ReasoningConstraint::ReasoningConstraint(std::unique_ptr<TokenConstraint> inner,
                                         std::shared_ptr<const GrammarVocabulary> vocabulary)
    : inner_(std::move(inner)), vocabulary_(std::move(vocabulary)) {
  auto shared = std::make_shared<Shared>();
  for (TokenId id = 0; id < vocabulary_->size(); ++id) {
    const std::string_view text = vocabulary_->text(id);
    if (text == "\n") shared->line_ends[1].push_back(id);
    if (text == "\n\n") shared->line_ends[2].push_back(id);
    if (text.find('>') == std::string_view::npos) continue;  // ends nothing
    for (std::size_t before = 0; before < kEnd.size(); ++before) {
      std::size_t matched = before;
      const std::size_t used = read(text, matched);
      if (used == std::string_view::npos) continue;
      const std::string_view behind = text.substr(used);
      if (behind.size() <= kMostLineEnds && is_line_ends(behind)) continue;
      auto& mask = shared->masks[before];
      if (!mask) {
        mask = std::make_unique<TokenMask>(vocabulary_->size());
        for (TokenId other = 0; other < vocabulary_->size(); ++other) mask->allow(other);
      }
      mask->forbid(id);
    }
  }
  shared_ = std::move(shared);
}

ReasoningConstraint::ReasoningConstraint(const ReasoningConstraint& other)
    : inner_(other.inner_->clone()),
      vocabulary_(other.vocabulary_),
      shared_(other.shared_),
      place_(other.place_),
      matched_(other.matched_),
      line_ends_(other.line_ends_) {}

/// Knuth, Morris and Pratt 1977; '<' stands only at the start of the end, so a miss falls back to it or to
/// nothing.
std::size_t ReasoningConstraint::read(std::string_view text, std::size_t& matched) const {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != kEnd[matched]) matched = 0;
    if (text[i] == kEnd[matched]) ++matched;
    if (matched == kEnd.size()) return i + 1;
  }
  return std::string_view::npos;
}

const TokenMask* ReasoningConstraint::mask() {
  if (place_ == Place::kReasoning) return shared_->masks[matched_].get();
  const TokenMask* inner = inner_->mask();
  if (place_ == Place::kAnswer || inner == nullptr) return inner;
  auto mask = std::make_shared<TokenMask>(*inner);
  for (std::size_t count = 1; count + line_ends_ <= kMostLineEnds; ++count)
    for (const TokenId id : shared_->line_ends[count]) mask->allow(id);
  mask_ = std::move(mask);
  return mask_.get();
}

void ReasoningConstraint::accept(TokenId id) {
  if (place_ == Place::kReasoning) {
    if (id < 0 || id >= vocabulary_->size()) return;
    const std::string_view text = vocabulary_->text(id);
    const std::size_t used = read(text, matched_);
    if (used == std::string_view::npos) return;
    place_ = Place::kLineEnds;
    line_ends_ = text.size() - used;
    return;
  }
  if (place_ == Place::kLineEnds) {
    // A line end that the answer itself may begin with is the answer's.
    const TokenMask* inner = inner_->mask();
    const bool is_answer = inner == nullptr || inner->allows(id);
    if (!is_answer && id >= 0 && id < vocabulary_->size() && is_line_ends(vocabulary_->text(id))) {
      line_ends_ += vocabulary_->text(id).size();
      return;
    }
    place_ = Place::kAnswer;
  }
  inner_->accept(id);
}

std::unique_ptr<TokenConstraint> ReasoningConstraint::clone() const {
  return std::make_unique<ReasoningConstraint>(*this);
}

}  // namespace mererun
