#include "grammar/grammar_constraint.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace mererun {
namespace {

constexpr std::size_t kSoftBytes = std::size_t{16} << 20;  // of a table, before it is begun anew
constexpr std::size_t kHardBytes = std::size_t{96} << 20;  // within one mask
constexpr std::size_t kMaxMasks = 256;                     // 31 KB each for the largest vocabulary

}  // namespace

GrammarConstraint::GrammarConstraint(std::shared_ptr<const Automaton> automaton,
                                     std::shared_ptr<const GrammarVocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)),
      memory_(std::make_shared<Memory>(std::move(automaton))),
      state_(memory_->table.start()) {}

const TokenMask* GrammarConstraint::mask() {
  if (mask_) return mask_.get();
  if (has_ended_) {
    mask_ = std::make_shared<TokenMask>(vocabulary_->size());
    return mask_.get();
  }
  const StateId state = state_for_mask();
  if (const auto known = memory_->masks.find(state); known != memory_->masks.end()) {
    mask_ = known->second;
  } else {
    mask_ = compute_mask(state);
    if (memory_->masks.size() >= kMaxMasks) memory_->masks.clear();
    memory_->masks.emplace(state_for_mask(), mask_);
  }
  if (memory_->table.may_end(state_)) {
    auto with_end = std::make_shared<TokenMask>(*mask_);
    for (const TokenId id : vocabulary_->eos_ids()) with_end->allow(id);
    mask_ = std::move(with_end);
  }
  return mask_.get();
}

/// A state with the same allowed tokens, the same one for as many states as possible: counts that are further
/// from their bounds than any token reaches are alike. The end of sequence is not part of it.
StateId GrammarConstraint::state_for_mask() {
  StateTable& table = memory_->table;
  const int reach = vocabulary_->trie().max_depth();
  std::vector<Configuration> alike(table.configurations(state_).begin(), table.configurations(state_).end());
  for (Configuration& c : alike) {
    const Counter* counter = table.automaton()->counter(c.node);
    if (counter == nullptr) continue;
    if (c.count < counter->min - reach)
      c.count = counter->min - reach - 1;
    else if (c.count >= counter->min && counter->max >= 0 && c.count < counter->max - reach)
      c.count = std::max(counter->min, counter->max - reach - 1);
  }
  return table.state_of(std::move(alike));
}

std::shared_ptr<const TokenMask> GrammarConstraint::compute_mask(StateId state) {
  if (auto mask = try_mask(state)) return mask;
  // The memory of other states filled the table; whether this state is too complex must not depend on them.
  start_memory_anew();
  if (auto mask = try_mask(state_for_mask())) return mask;
  return std::make_shared<TokenMask>(vocabulary_->size());
}

/// Null when the table grows too large.
std::shared_ptr<const TokenMask> GrammarConstraint::try_mask(StateId state) {
  StateTable& table = memory_->table;
  auto mask = std::make_shared<TokenMask>(vocabulary_->size());
  // Configurations in the middle of a run allow all of its slice up to the run's end, and leave only the rest
  // of the vocabulary to look at. What is allowed in a state is what some configuration allows.
  struct Run {
    std::vector<Configuration> configurations;
    int characters = 0;
  };
  Run runs[kNumTextSlices];
  for (const Configuration& c : table.configurations(state)) {
    const TextSlice slice = table.automaton()->slice(c.node);
    Run& run = runs[static_cast<std::size_t>(slice)];
    run.configurations.push_back(c);
    if (slice == TextSlice::kNone) continue;
    const SliceTokens& tokens = vocabulary_->slice(slice);
    const Counter* counter = table.automaton()->counter(c.node);
    const int longest = static_cast<int>(tokens.up_to.size()) - 1;
    const bool is_bounded = counter != nullptr && counter->max >= 0;
    run.characters =
        std::max(run.characters, is_bounded ? std::min(counter->max - c.count, longest) : longest);
  }
  for (int index = 0; index < kNumTextSlices; ++index) {
    const auto slice = static_cast<TextSlice>(index);
    Run& run = runs[index];
    if (run.configurations.empty()) continue;
    if (slice != TextSlice::kNone)
      mask->allow_all_of(vocabulary_->slice(slice).up_to[static_cast<std::size_t>(run.characters)]);
    const TokenTrie& trie = slice == TextSlice::kNone ? vocabulary_->trie() : vocabulary_->slice(slice).rest;
    if (!add_allowed(table.state_of(std::move(run.configurations)), trie, *mask)) return nullptr;
  }
  return mask;
}

/// Allows the tokens of the trie that lead somewhere; false when the table grows too large.
bool GrammarConstraint::add_allowed(StateId state, const TokenTrie& trie, TokenMask& mask) {
  StateTable& table = memory_->table;
  const std::vector<TokenTrie::Node>& nodes = trie.nodes();
  std::vector<StateId> path(static_cast<std::size_t>(trie.max_depth()) + 1);
  path[0] = state;
  std::size_t looked_at = 0;
  for (std::size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const StateId next = table.step(path[node.depth - 1u], node.byte);
    if (next == StateTable::kDead) {
      i += node.size;
      continue;
    }
    path[node.depth] = next;
    if (node.token >= 0) mask.allow(node.token);
    ++i;
    if ((++looked_at & 0xFFF) == 0 && table.bytes() > kHardBytes) return false;
  }
  return true;
}

void GrammarConstraint::start_memory_anew() {
  auto fresh = std::make_shared<Memory>(memory_->table.automaton());
  state_ = fresh->table.import(memory_->table, state_);
  fresh->initial_bytes = fresh->table.bytes();
  memory_ = std::move(fresh);
}

void GrammarConstraint::accept(TokenId id) {
  mask_.reset();
  const std::vector<TokenId>& eos = vocabulary_->eos_ids();
  if (std::find(eos.begin(), eos.end(), id) != eos.end()) {
    has_ended_ = memory_->table.may_end(state_);
    if (!has_ended_) state_ = StateTable::kDead;
    return;
  }
  if (memory_->table.bytes() > std::max(kSoftBytes, 2 * memory_->initial_bytes)) start_memory_anew();
  const std::string_view bytes = vocabulary_->grammar_bytes(id);
  if (bytes.empty()) state_ = StateTable::kDead;
  for (const char byte : bytes) state_ = memory_->table.step(state_, static_cast<std::uint8_t>(byte));
}

bool GrammarConstraint::is_complete() const {
  return has_ended_ || (memory_->table.may_end(state_) && !memory_->table.may_continue(state_));
}

std::unique_ptr<TokenConstraint> GrammarConstraint::clone() const {
  return std::make_unique<GrammarConstraint>(*this);
}

}  // namespace mererun
