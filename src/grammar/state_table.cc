#include "grammar/state_table.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"

namespace mererun {
namespace {

constexpr int kOutputEnd = -1;  // the return node of the root rule
constexpr std::size_t kShortList = 24;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15u + (hash << 6) + (hash >> 2);
  hash *= 0xBF58476D1CE4E5B9u;
  return hash ^ (hash >> 29);
}

std::uint64_t hash_of(const Configuration& c) {
  const std::uint64_t low = static_cast<std::uint32_t>(c.node) |
                            static_cast<std::uint64_t>(static_cast<std::uint32_t>(c.count)) << 32;
  return mix(mix(0, low), static_cast<std::uint32_t>(c.stack));
}

std::uint64_t hash_of(const std::vector<Configuration>& list, bool flag) {
  std::uint64_t hash = flag ? 1 : 0;
  for (const Configuration& c : list) hash = mix(hash, hash_of(c));
  return hash;
}

void sort_unique(std::vector<Configuration>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace

std::size_t StateTable::Arrivals::Hash::operator()(const Configuration& c) const {
  return static_cast<std::size_t>(hash_of(c));
}

void StateTable::Arrivals::clear() {
  list_.clear();
  seen_.clear();
}

void StateTable::Arrivals::add(const Configuration& configuration) {
  if (list_.size() < kShortList) {
    if (std::find(list_.begin(), list_.end(), configuration) != list_.end()) return;
  } else {
    if (seen_.empty()) seen_.insert(list_.begin(), list_.end());
    if (!seen_.insert(configuration).second) return;
  }
  list_.push_back(configuration);
}

StateTable::StateTable(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {
  std::vector<Configuration> bottom = {{kOutputEnd, 0, 0}};
  intern_stack(bottom);
  std::vector<Configuration> none;
  intern_state(none, false);  // kDead
  std::fill(next_.begin(), next_.end(), kDead);
  arrivals_.clear();
  arrivals_.add({automaton_->entry(), 0, 0});
  start_ = expand();
}

int StateTable::intern_stack(std::vector<Configuration>& list) {
  sort_unique(list);
  const std::uint64_t hash = hash_of(list, false);
  for (auto [at_entry, end] = stack_index_.equal_range(hash); at_entry != end; ++at_entry) {
    if (std::ranges::equal(frames(at_entry->second), list)) return at_entry->second;
  }
  stacks_.push_back({frames_.size(), frames_.size() + list.size()});
  frames_.insert(frames_.end(), list.begin(), list.end());
  const int id = static_cast<int>(stacks_.size()) - 1;
  stack_index_.emplace(hash, id);
  return id;
}

StateId StateTable::intern_state(std::vector<Configuration>& list, bool may_end) {
  sort_unique(list);
  const std::uint64_t hash = hash_of(list, may_end);
  for (auto [at_entry, end] = state_index_.equal_range(hash); at_entry != end; ++at_entry) {
    const StateId id = at_entry->second;
    if (at(id).may_end == may_end && std::ranges::equal(configurations(id), list)) return id;
  }
  states_.push_back({configurations_.size(), configurations_.size() + list.size(), may_end});
  configurations_.insert(configurations_.end(), list.begin(), list.end());
  next_.resize(next_.size() + static_cast<std::size_t>(automaton_->num_byte_classes()), -1);
  const StateId id = static_cast<StateId>(states_.size()) - 1;
  state_index_.emplace(hash, id);
  return id;
}

StateId StateTable::state_of(std::vector<Configuration> list) { return intern_state(list, false); }

/// The count at `node` when one more turn of its counting node has ended there.
int StateTable::count_after(int node, int count) const {
  const Counter* counter = automaton_->counter(node);
  if (counter == nullptr) return count;
  // Without an upper bound nothing distinguishes counts above the lower one.
  return counter->max < 0 ? std::min(count + 1, counter->min) : count + 1;
}

StateId StateTable::compute_step(StateId state, std::uint8_t byte) {
  arrivals_.clear();
  for (const Configuration& from : configurations(state)) {
    for (const ByteEdge& edge : automaton_->edges(from.node)) {
      if (byte < edge.first || byte > edge.last) continue;
      const int count = edge.ends_character ? count_after(edge.target, from.count) : from.count;
      arrivals_.add({edge.target, count, from.stack});
    }
  }
  const StateId next = expand();
  next_[transition(state, automaton_->byte_class(byte))] = next;
  return next;
}

/// Puts a configuration into the result if it can read a byte, and notes its calls.
void StateTable::gather(const Configuration& configuration) {
  const Counter* counter = automaton_->counter(configuration.node);
  if (counter != nullptr && counter->max >= 0 && configuration.count >= counter->max) return;
  if (!automaton_->edges(configuration.node).empty()) result_.push_back(configuration);
  call(configuration);
}

void StateTable::call(const Configuration& from) {
  for (const CallEdge& edge : automaton_->calls(from.node)) {
    const int rank = automaton_->rank(edge.rule);
    const auto [at_rank, is_new] = calls_by_rank_.try_emplace(rank);
    if (is_new) {
      open_ranks_.push_back(rank);
      std::push_heap(open_ranks_.begin(), open_ranks_.end(), std::greater<>());
    }
    std::vector<Configuration>& returns = at_rank->second;
    if (automaton_->is_final(edge.target)) {
      const auto below = frames(from.stack);
      returns.insert(returns.end(), below.begin(), below.end());
    } else {
      returns.push_back({edge.target, count_after(edge.target, from.count), from.stack});
    }
  }
}

/// The state of what arrived over a byte: first every return, then every call. A rule is entered once its
/// callers are all known, which the ranks ensure. A rule that could end where it begins has a way around it
/// (AutomatonFinisher), so that no return depends on a call.
StateId StateTable::expand() {
  result_.clear();
  calls_by_rank_.clear();
  open_ranks_.clear();
  bool may_end = false;
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    if (i >= kMaxConfigurations) return kDead;
    const Configuration arrived = arrivals_[i];
    if (arrived.node == kOutputEnd) {
      may_end = true;
      continue;
    }
    gather(arrived);
    const Counter* counter = automaton_->counter(arrived.node);
    if (!automaton_->is_end(arrived.node) || (counter != nullptr && arrived.count < counter->min)) continue;
    for (const Configuration& frame : frames(arrived.stack)) arrivals_.add(frame);
  }
  while (!open_ranks_.empty()) {
    std::pop_heap(open_ranks_.begin(), open_ranks_.end(), std::greater<>());
    const int rank = open_ranks_.back();
    open_ranks_.pop_back();
    const int stack = intern_stack(calls_by_rank_.at(rank));
    gather({automaton_->rule_entry(automaton_->rule_of_rank(rank)), 0, stack});
    if (result_.size() > kMaxConfigurations) return kDead;
  }
  if (result_.empty() && !may_end) return kDead;
  return intern_state(result_, may_end);
}

StateId StateTable::import(const StateTable& other, StateId state) {
  // Stacks are made after those below them, so ascending order copies the lower one first.
  std::vector<int> needed;
  std::vector<bool> seen(other.stacks_.size(), false);
  const auto need = [&](int stack) {
    if (seen[static_cast<std::size_t>(stack)]) return;
    seen[static_cast<std::size_t>(stack)] = true;
    needed.push_back(stack);
  };
  for (const Configuration& c : other.configurations(state)) need(c.stack);
  for (std::size_t i = 0; i < needed.size(); ++i)
    for (const Configuration& frame : other.frames(needed[i])) need(frame.stack);
  std::sort(needed.begin(), needed.end());
  std::unordered_map<int, int> copies;
  for (const int stack : needed) {
    std::vector<Configuration> list(other.frames(stack).begin(), other.frames(stack).end());
    if (stack != 0)
      for (Configuration& frame : list) frame.stack = copies.at(frame.stack);
    copies.emplace(stack, intern_stack(list));
  }
  std::vector<Configuration> list(other.configurations(state).begin(), other.configurations(state).end());
  for (Configuration& c : list) c.stack = copies.at(c.stack);
  return intern_state(list, other.may_end(state));
}

std::size_t StateTable::bytes() const {
  constexpr std::size_t kIndexEntry = 48;  // of a hash map
  return (configurations_.capacity() + frames_.capacity()) * sizeof(Configuration) +
         next_.capacity() * sizeof(std::int32_t) + states_.size() * (sizeof(State) + kIndexEntry) +
         stacks_.size() * (sizeof(Range) + kIndexEntry);
}

}  // namespace mererun
