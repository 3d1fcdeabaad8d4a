#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/expression.h"

namespace mererun {

/// A node while the automaton grows: empty transitions are still there.
struct DraftNode {
  std::vector<ByteEdge> edges;
  std::vector<CallEdge> calls;
  std::vector<int> epsilons;
  std::optional<Counter> counter;
  TextSlice slice = TextSlice::kNone;
  bool is_end = false;
};

struct DraftRule {
  int entry;
  std::string name;
};

/// Turns expressions into nodes (Thompson's construction), repetitions with large bounds into rules with a
/// counting node.
///
/// Thread-safety: thread-compatible.
class AutomatonBuilder {
 public:
  static constexpr std::size_t kMaxNodes = 400'000;
  static constexpr std::size_t kMaxEdges = 4'000'000;

  explicit AutomatonBuilder(const ExpressionPool& pool) : pool_(pool) {}

  /// Lays out every rule of the pool. Errors: kInvalidArgument above the bounds.
  void add_rules();

  std::vector<DraftNode>& nodes() { return nodes_; }
  const std::vector<DraftRule>& rules() const { return rules_; }

 private:
  /// Where a rule may not be used: the nodes will be copied, one copy for each length.
  enum class Calls { kAllowed, kNone };

  DraftNode& at(int node) { return nodes_[static_cast<std::size_t>(node)]; }
  int add_node();
  void add_epsilon(int from, int to) { at(from).epsilons.push_back(to); }
  void add_edge(int from, ByteEdge edge);
  void add_call(int from, RuleId rule, int to);
  RuleId add_rule(int entry, std::string name);

  void lower(ExpressionId id, int from, int to, Calls calls);
  void lower_bytes(const std::string& bytes, int from, int to);
  void lower_repeat(const Expression& repeat, int from, int to, Calls calls);
  void unroll(const Expression& repeat, int from, int to, Calls calls);
  void lower_length(const Expression& length, int from, int to);
  void lower_class(const Expression& character, int from, int to);
  void lower_set(const CodePointSet& set, int from, int to);
  void lower_json_escapes(const CodePointSet& set, int from, int to);
  void lower_free_json_escapes(int from, int to);
  RuleId counting_rule(ExpressionId body, Counter counter);
  RuleId text_rule(const std::vector<std::string>& excluded);
  RuleId rule_of(ExpressionId id);
  std::size_t weight(ExpressionId id);

  const ExpressionPool& pool_;
  std::vector<DraftNode> nodes_;
  std::vector<DraftRule> rules_;
  std::size_t num_edges_ = 0;
  std::vector<std::size_t> weights_;  // by expression; 0: not known yet
  std::map<std::pair<ExpressionId, std::pair<int, int>>, RuleId> counting_rules_;
  std::map<std::vector<std::string>, RuleId> text_rules_;
  std::map<ExpressionId, RuleId> body_rules_;
};

}  // namespace mererun
