#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/expression.h"
#include "grammar/text_slice.h"

namespace mererun {

/// A transition over one byte.
struct ByteEdge {
  int target;
  std::uint8_t first;
  std::uint8_t last;
  bool ends_character;  // into a counting node: one more
  auto operator<=>(const ByteEdge&) const = default;
};

/// A transition over what a rule says.
struct CallEdge {
  RuleId rule;
  int target;  // into a counting node: one more
  auto operator<=>(const CallEdge&) const = default;
};

/// How often a counting node may be left for another turn, and when its rule may end there. The count lives
/// in the configuration (see StateTable): numbers as large as a schema likes cost nothing.
struct Counter {
  int min = 0;
  int max = -1;  // -1: no bound
  bool operator==(const Counter&) const = default;
};

/// A grammar as a nondeterministic automaton over bytes whose transitions may call rules; without empty
/// transitions, dead ends and left recursion.
///
/// Thread-safety: immutable once built.
class Automaton {
 public:
  /// Errors: kInvalidArgument for left recursion, for a grammar that no text satisfies, and above the bounds
  /// of docs/constraints.md.
  static std::shared_ptr<const Automaton> compile(const ExpressionPool& pool, RuleId root);

  int entry() const { return entry_; }
  std::span<const ByteEdge> edges(int node) const { return slice_of(edges_, at(node).edges); }
  std::span<const CallEdge> calls(int node) const { return slice_of(calls_, at(node).calls); }
  bool is_end(int node) const { return at(node).is_end; }
  /// Null for a node that does not count.
  const Counter* counter(int node) const {
    const int index = at(node).counter;
    return index < 0 ? nullptr : &counters_[static_cast<std::size_t>(index)];
  }
  TextSlice slice(int node) const { return at(node).slice; }
  /// Nothing follows in its rule: a call that returns here can return to the caller's caller.
  bool is_final(int node) const { return at(node).is_final; }

  int rule_entry(RuleId rule) const { return rule_entries_[static_cast<std::size_t>(rule)]; }
  /// A rule that another calls before it reads a byte has the higher rank.
  int rank(RuleId rule) const { return ranks_[static_cast<std::size_t>(rule)]; }
  RuleId rule_of_rank(int rank) const { return rules_by_rank_[static_cast<std::size_t>(rank)]; }

  /// Bytes that no edge tells apart share a class.
  int byte_class(std::uint8_t byte) const { return byte_classes_[byte]; }
  int num_byte_classes() const { return num_byte_classes_; }

 private:
  friend class AutomatonFinisher;
  struct Range {
    int begin = 0;
    int end = 0;
  };
  struct Node {
    Range edges, calls;
    int counter = -1;
    bool is_end = false;
    bool is_final = false;
    TextSlice slice = TextSlice::kNone;
  };

  template <typename T>
  static std::span<const T> slice_of(const std::vector<T>& values, Range range) {
    return std::span<const T>(values).subspan(static_cast<std::size_t>(range.begin),
                                              static_cast<std::size_t>(range.end - range.begin));
  }
  const Node& at(int node) const { return nodes_[static_cast<std::size_t>(node)]; }

  int entry_ = 0;
  std::vector<Node> nodes_;
  std::vector<ByteEdge> edges_;
  std::vector<CallEdge> calls_;
  std::vector<Counter> counters_;
  std::vector<int> rule_entries_, ranks_;
  std::vector<RuleId> rules_by_rank_;
  std::array<std::uint8_t, 256> byte_classes_{};
  int num_byte_classes_ = 1;
};

}  // namespace mererun
