#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "decode/token_constraint.h"
#include "grammar/grammar_vocabulary.h"

namespace mererun {

/// Nothing until the text has said `</think>`, in one token or in several; then at most two line ends, as the
/// chat templates put there; then another constraint. A token that goes on behind `</think>` may only add
/// line ends.
///
/// Thread-safety: one thread at a time; as its inner constraint.
class ReasoningConstraint final : public TokenConstraint {
 public:
  ReasoningConstraint(std::unique_ptr<TokenConstraint> inner,
                      std::shared_ptr<const GrammarVocabulary> vocabulary);
  ReasoningConstraint(const ReasoningConstraint& other);
  ReasoningConstraint& operator=(const ReasoningConstraint&) = delete;

  const TokenMask* mask() override;
  void accept(TokenId id) override;
  bool is_complete() const override { return place_ == Place::kAnswer && inner_->is_complete(); }
  std::unique_ptr<TokenConstraint> clone() const override;

 private:
  static constexpr std::string_view kEnd = "</think>";
  enum class Place { kReasoning, kLineEnds, kAnswer };

  /// Reads a token's text in the reasoning; returns how much of it the end took, or npos.
  std::size_t read(std::string_view text, std::size_t& matched) const;
  struct Shared {
    std::array<std::unique_ptr<TokenMask>, kEnd.size()> masks;  // by matched; null: all are allowed
    std::vector<TokenId> line_ends[3];                          // tokens of 1 and of 2 line ends
  };

  std::unique_ptr<TokenConstraint> inner_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::shared_ptr<const Shared> shared_;
  Place place_ = Place::kReasoning;
  std::size_t matched_ = 0;                // characters of the end that the text ends in
  std::size_t line_ends_ = 0;              // behind the end
  std::shared_ptr<const TokenMask> mask_;  // in kLineEnds
};

}  // namespace mererun
