#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grammar/automaton.h"

namespace mererun {

using StateId = int;

/// A place where an automaton may be: a node, the turns of its counting node, and where its rule returns to.
struct Configuration {
  int node;
  int count;
  int stack;
  auto operator<=>(const Configuration&) const = default;
};

/// The states that a text can bring an automaton into, made as they are needed and remembered with the
/// transitions between them.
///
/// A state is the set of all configurations that the text allows. A stack is a set of return places, each
/// with the stack below it: rules called at the same byte from several places run once (a graph-structured
/// stack; Tomita 1987), so the work for a byte grows with the grammar and the text's length, not with the
/// number of ways to read the text. A call that is the last thing of its rule leaves no trace on the stack.
///
/// Thread-safety: one thread at a time.
class StateTable {
 public:
  static constexpr StateId kDead = 0;
  /// A state with more is too ambiguous and counts as dead.
  static constexpr std::size_t kMaxConfigurations = 2048;

  explicit StateTable(std::shared_ptr<const Automaton> automaton);

  const std::shared_ptr<const Automaton>& automaton() const { return automaton_; }
  StateId start() const { return start_; }
  /// The state one byte further; kDead when the grammar does not allow it.
  StateId step(StateId state, std::uint8_t byte) {
    const int byte_class = automaton_->byte_class(byte);
    const std::int32_t known = next_[transition(state, byte_class)];
    return known >= 0 ? known : compute_step(state, byte);
  }

  /// The text may end here.
  bool may_end(StateId state) const { return at(state).may_end; }
  /// More text may follow.
  bool may_continue(StateId state) const { return at(state).begin < at(state).end; }
  std::span<const Configuration> configurations(StateId state) const {
    const State& range = at(state);
    return std::span<const Configuration>(configurations_).subspan(range.begin, range.end - range.begin);
  }
  /// A state of these configurations, in which the text may not end. They are of this table.
  StateId state_of(std::vector<Configuration> configurations);

  /// The state of another table for the same automaton, in this one.
  StateId import(const StateTable& other, StateId state);

  /// Memory in use, roughly.
  std::size_t bytes() const;

 private:
  struct State {
    std::size_t begin;
    std::size_t end;
    bool may_end;
  };
  struct Range {
    std::size_t begin;
    std::size_t end;
  };

  /// Configurations without repeats, in the order in which they came.
  class Arrivals {
   public:
    void clear();
    void add(const Configuration& configuration);
    std::size_t size() const { return list_.size(); }
    const Configuration& operator[](std::size_t i) const { return list_[i]; }

   private:
    struct Hash {
      std::size_t operator()(const Configuration& c) const;
    };
    std::vector<Configuration> list_;
    std::unordered_set<Configuration, Hash> seen_;  // once the list is long
  };

  const State& at(StateId state) const { return states_[static_cast<std::size_t>(state)]; }
  std::size_t transition(StateId state, int byte_class) const {
    return static_cast<std::size_t>(state) * static_cast<std::size_t>(automaton_->num_byte_classes()) +
           static_cast<std::size_t>(byte_class);
  }
  std::span<const Configuration> frames(int stack) const {
    const Range& range = stacks_[static_cast<std::size_t>(stack)];
    return std::span<const Configuration>(frames_).subspan(range.begin, range.end - range.begin);
  }
  StateId compute_step(StateId state, std::uint8_t byte);
  StateId expand();
  void gather(const Configuration& configuration);
  void call(const Configuration& from);
  int count_after(int node, int count) const;
  StateId intern_state(std::vector<Configuration>& configurations, bool may_end);
  int intern_stack(std::vector<Configuration>& frames);

  std::shared_ptr<const Automaton> automaton_;
  StateId start_ = kDead;
  std::vector<State> states_;
  std::vector<Configuration> configurations_;  // of all states, each state's ascending
  std::vector<std::int32_t> next_;             // [states, byte classes]; -1: not computed
  std::unordered_multimap<std::uint64_t, StateId> state_index_;
  std::vector<Range> stacks_;          // the first is below the root rule
  std::vector<Configuration> frames_;  // of all stacks: return node, its count, the stack below
  std::unordered_multimap<std::uint64_t, int> stack_index_;

  // Of the step in progress.
  Arrivals arrivals_;
  std::vector<Configuration> result_;
  std::unordered_map<int, std::vector<Configuration>> calls_by_rank_;
  std::vector<int> open_ranks_;  // a heap, smallest first
};

}  // namespace mererun
