#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <utility>

#include "decode/token_constraint.h"
#include "grammar/automaton.h"
#include "grammar/grammar_vocabulary.h"
#include "grammar/state_table.h"

namespace mererun {

/// Output that an automaton accepts.
///
/// The allowed tokens of a state depend on the text so far and nothing else; they are worked out when first
/// asked for and remembered. A clone shares what is remembered, so it costs no more than a pointer. A state
/// too complex for the bounds of docs/constraints.md allows nothing, which ends the request as a dead end.
///
/// Thread-safety: a constraint and its clones together: one thread at a time.
class GrammarConstraint final : public TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const Automaton> automaton,
                    std::shared_ptr<const GrammarVocabulary> vocabulary);

  const TokenMask* mask() override;
  void accept(TokenId id) override;
  bool is_complete() const override;
  std::unique_ptr<TokenConstraint> clone() const override;

 private:
  struct Memory {  // what a constraint and its clones know
    explicit Memory(std::shared_ptr<const Automaton> automaton) : table(std::move(automaton)) {}
    StateTable table;
    std::unordered_map<StateId, std::shared_ptr<const TokenMask>> masks;  // but for the end of sequence
    std::size_t initial_bytes = 0;
  };

  StateId state_for_mask();
  std::shared_ptr<const TokenMask> compute_mask(StateId state);
  std::shared_ptr<const TokenMask> try_mask(StateId state);
  bool add_allowed(StateId state, const TokenTrie& trie, TokenMask& mask);
  void start_memory_anew();

  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::shared_ptr<Memory> memory_;
  StateId state_;
  bool has_ended_ = false;                 // after an end-of-sequence token
  std::shared_ptr<const TokenMask> mask_;  // of the state, once asked for
};

}  // namespace mererun
