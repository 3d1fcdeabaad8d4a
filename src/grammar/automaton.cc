#include "grammar/automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "grammar/automaton_builder.h"

namespace mererun {

/// Takes the empty transitions out of a draft, drops what leads nowhere and lays the rest out.
class AutomatonFinisher {
 public:
  explicit AutomatonFinisher(AutomatonBuilder& builder) : draft_(builder.nodes()), rules_(builder.rules()) {}

  std::shared_ptr<const Automaton> finish(RuleId root) {
    find_empty_rules();
    bypass_empty_calls();
    close(root);
    find_productive();
    if (!productive_[static_cast<std::size_t>(entry_of(root))])
      fail_expected(ErrorCode::kInvalidArgument, "grammar", "at least one text that satisfies it", "none");
    drop_unproductive();
    auto result = std::make_shared<Automaton>();
    automaton_ = result.get();
    lay_out(root);
    rank_rules();
    classify_bytes();
    return result;
  }

 private:
  struct Node {  // without empty transitions
    std::vector<ByteEdge> edges;
    std::vector<CallEdge> calls;
    std::optional<Counter> counter;
    TextSlice slice = TextSlice::kNone;
    bool is_end = false;
  };

  DraftNode& draft(int node) { return draft_[static_cast<std::size_t>(node)]; }
  int rule_entry(RuleId rule) const { return rules_[static_cast<std::size_t>(rule)].entry; }
  int entry_of(RuleId rule) const { return closed_ids_.at(rule_entry(rule)); }

  /// Which rules say the empty text: a walk over empty transitions that goes on when a rule it waits for is
  /// found to be empty.
  void find_empty_rules() {
    is_empty_.assign(rules_.size(), false);
    std::vector<std::vector<std::pair<int, int>>> waiting(rules_.size());  // callee -> (source, target)
    std::vector<int> rule_of_node(draft_.size(), -1);
    std::vector<int> open;
    const auto reach = [&](int node, int rule) {
      if (rule_of_node[static_cast<std::size_t>(node)] >= 0) return;
      rule_of_node[static_cast<std::size_t>(node)] = rule;
      open.push_back(node);
    };
    for (std::size_t rule = 0; rule < rules_.size(); ++rule)
      reach(rules_[rule].entry, static_cast<int>(rule));
    const auto become_empty = [&](int rule) {
      if (is_empty_[static_cast<std::size_t>(rule)]) return;
      is_empty_[static_cast<std::size_t>(rule)] = true;
      newly_empty_.push_back(rule);
    };
    const auto pass = [&](int source, int target) {  // over a call that can be empty
      if (source == target && draft(source).counter) draft(source).counter->min = 0;
      reach(target, rule_of_node[static_cast<std::size_t>(source)]);
      const DraftNode& node = draft(source);
      if (node.counter && node.counter->min == 0)
        become_empty(rule_of_node[static_cast<std::size_t>(source)]);
    };
    while (!open.empty() || !newly_empty_.empty()) {
      if (open.empty()) {
        const int rule = newly_empty_.back();
        newly_empty_.pop_back();
        for (const auto& [source, target] : waiting[static_cast<std::size_t>(rule)]) pass(source, target);
        waiting[static_cast<std::size_t>(rule)].clear();
        continue;
      }
      const int node = open.back();
      open.pop_back();
      const int rule = rule_of_node[static_cast<std::size_t>(node)];
      const DraftNode& from = draft(node);
      if (from.is_end && (!from.counter || from.counter->min == 0)) become_empty(rule);
      for (const int next : from.epsilons) reach(next, rule);
      for (const CallEdge& call : from.calls) {
        if (is_empty_[static_cast<std::size_t>(call.rule)])
          pass(node, call.target);
        else
          waiting[static_cast<std::size_t>(call.rule)].emplace_back(node, call.target);
      }
    }
  }

  /// A call never ends where it begins (StateTable): the way past it is an empty transition.
  void bypass_empty_calls() {
    for (std::size_t node = 0; node < draft_.size(); ++node) {
      for (const CallEdge& call : draft_[node].calls) {
        if (!is_empty_[static_cast<std::size_t>(call.rule)]) continue;
        if (draft_[node].counter)
          draft_[node].counter->min = 0;  // an empty turn counts as well as any
        else
          draft_[node].epsilons.push_back(call.target);
      }
    }
  }

  int closed_id(int draft_node) {
    const auto [id, is_new] = closed_ids_.try_emplace(draft_node, static_cast<int>(closed_.size()));
    if (is_new) {
      closed_.emplace_back();
      closed_drafts_.push_back(draft_node);
    }
    return id->second;
  }

  /// Gives every node that a byte, a call or a return can reach the transitions of all nodes that empty
  /// transitions lead to from it.
  void close(RuleId root) {
    closed_id(rule_entry(root));
    std::vector<std::uint32_t> seen(draft_.size(), 0);
    std::size_t total = 0;
    std::vector<int> open;
    for (std::size_t i = 0; i < closed_.size(); ++i) {  // grows while it runs
      Node node;
      const int start = closed_drafts_[i];
      node.counter = draft(start).counter;
      node.slice = draft(start).slice;
      open.assign(1, start);
      const auto mark = static_cast<std::uint32_t>(i + 1);
      seen[static_cast<std::size_t>(start)] = mark;
      while (!open.empty()) {
        const DraftNode& from = draft(open.back());
        open.pop_back();
        node.is_end = node.is_end || from.is_end;
        for (ByteEdge edge : from.edges) {
          edge.target = closed_id(edge.target);
          node.edges.push_back(edge);
        }
        for (CallEdge call : from.calls) {
          call.target = closed_id(call.target);
          closed_id(rule_entry(call.rule));
          node.calls.push_back(call);
        }
        for (const int next : from.epsilons) {
          if (std::exchange(seen[static_cast<std::size_t>(next)], mark) != mark) open.push_back(next);
        }
        if (total + node.edges.size() + node.calls.size() > AutomatonBuilder::kMaxEdges)
          fail_expected(ErrorCode::kInvalidArgument, "grammar",
                        fmt::format("at most {} transitions", AutomatonBuilder::kMaxEdges), "more");
      }
      sort_unique(node.edges);
      sort_unique(node.calls);
      total += node.edges.size() + node.calls.size();
      closed_[i] = std::move(node);
    }
  }

  template <typename T>
  static void sort_unique(std::vector<T>& values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  }

  /// Nodes from which the end of their rule can be reached.
  void find_productive() {
    const std::size_t count = closed_.size();
    productive_.assign(count, false);
    std::vector<std::vector<int>> edge_sources(count);
    std::vector<std::vector<std::pair<int, CallEdge>>> call_users(count);  // by return and by entry of callee
    for (std::size_t i = 0; i < count; ++i) {
      for (const ByteEdge& edge : closed_[i].edges)
        edge_sources[static_cast<std::size_t>(edge.target)].push_back(static_cast<int>(i));
      for (const CallEdge& call : closed_[i].calls) {
        call_users[static_cast<std::size_t>(call.target)].emplace_back(static_cast<int>(i), call);
        call_users[static_cast<std::size_t>(entry_of(call.rule))].emplace_back(static_cast<int>(i), call);
      }
    }
    std::vector<int> open;
    const auto mark = [&](int node) {
      if (productive_[static_cast<std::size_t>(node)]) return;
      productive_[static_cast<std::size_t>(node)] = true;
      open.push_back(node);
    };
    for (std::size_t i = 0; i < count; ++i) {
      // A character can always be read again; a counting node that calls waits for its callee.
      const Node& node = closed_[i];
      if (node.is_end && (!node.counter || node.counter->min == 0 || !node.edges.empty()))
        mark(static_cast<int>(i));
    }
    while (!open.empty()) {
      const auto node = static_cast<std::size_t>(open.back());
      open.pop_back();
      for (const int source : edge_sources[node]) mark(source);
      for (const auto& [source, call] : call_users[node]) {
        const bool turns = source == call.target;  // of a counting node, whose end is the end of a turn
        if (productive_[static_cast<std::size_t>(entry_of(call.rule))] &&
            (turns ? closed_[static_cast<std::size_t>(source)].is_end
                   : productive_[static_cast<std::size_t>(call.target)]))
          mark(source);
      }
    }
  }

  void drop_unproductive() {
    for (Node& node : closed_) {
      std::erase_if(node.edges, [this](const ByteEdge& edge) {
        return !productive_[static_cast<std::size_t>(edge.target)];
      });
      std::erase_if(node.calls, [this](const CallEdge& call) {
        return !productive_[static_cast<std::size_t>(call.target)] ||
               !productive_[static_cast<std::size_t>(entry_of(call.rule))];
      });
    }
  }

  void lay_out(RuleId root) {
    Automaton& out = *automaton_;
    out.entry_ = entry_of(root);
    out.rule_entries_.assign(rules_.size(), -1);
    for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
      const auto entry = closed_ids_.find(rules_[rule].entry);
      if (entry != closed_ids_.end()) out.rule_entries_[rule] = entry->second;
    }
    for (const Node& node : closed_) {
      Automaton::Node laid;
      laid.edges.begin = static_cast<int>(out.edges_.size());
      out.edges_.insert(out.edges_.end(), node.edges.begin(), node.edges.end());
      laid.edges.end = static_cast<int>(out.edges_.size());
      laid.calls.begin = static_cast<int>(out.calls_.size());
      out.calls_.insert(out.calls_.end(), node.calls.begin(), node.calls.end());
      laid.calls.end = static_cast<int>(out.calls_.size());
      laid.is_end = node.is_end;
      laid.slice = node.slice;
      if (node.counter) {
        laid.counter = static_cast<int>(out.counters_.size());
        out.counters_.push_back(*node.counter);
      }
      laid.is_final = node.is_end && !node.counter && node.edges.empty() && node.calls.empty();
      out.nodes_.push_back(laid);
    }
  }

  /// Callers before callees, over calls made before a byte is read (Kahn 1962).
  void rank_rules() {
    Automaton& out = *automaton_;
    std::vector<int> callers(rules_.size(), 0);
    const auto first_calls = [&](std::size_t rule) {
      const int entry = out.rule_entries_[rule];
      return entry < 0 ? std::span<const CallEdge>{} : out.calls(entry);
    };
    for (std::size_t rule = 0; rule < rules_.size(); ++rule)
      for (const CallEdge& call : first_calls(rule)) ++callers[static_cast<std::size_t>(call.rule)];
    std::vector<RuleId>& order = out.rules_by_rank_;
    for (std::size_t rule = 0; rule < rules_.size(); ++rule)
      if (callers[rule] == 0) order.push_back(static_cast<RuleId>(rule));
    for (std::size_t i = 0; i < order.size(); ++i)
      for (const CallEdge& call : first_calls(static_cast<std::size_t>(order[i])))
        if (--callers[static_cast<std::size_t>(call.rule)] == 0) order.push_back(call.rule);
    if (order.size() < rules_.size()) {
      const auto looping = static_cast<std::size_t>(
          std::find_if(callers.begin(), callers.end(), [](int n) { return n > 0; }) - callers.begin());
      fail_expected(ErrorCode::kInvalidArgument, fmt::format("grammar: rule \"{}\"", rules_[looping].name),
                    "text before a rule refers to itself", "left recursion");
    }
    out.ranks_.assign(rules_.size(), 0);
    for (std::size_t i = 0; i < order.size(); ++i)
      out.ranks_[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  }

  void classify_bytes() {
    std::array<bool, 257> starts{};
    for (const ByteEdge& edge : automaton_->edges_) {
      starts[edge.first] = true;
      starts[static_cast<std::size_t>(edge.last) + 1] = true;
    }
    int current = 0;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (byte > 0 && starts[byte]) ++current;
      automaton_->byte_classes_[byte] = static_cast<std::uint8_t>(current);
    }
    automaton_->num_byte_classes_ = current + 1;
  }

  std::vector<DraftNode>& draft_;
  const std::vector<DraftRule>& rules_;
  std::vector<bool> is_empty_;    // by rule
  std::vector<int> newly_empty_;  // rules whose callers have not been told
  std::unordered_map<int, int> closed_ids_;
  std::vector<int> closed_drafts_;
  std::vector<Node> closed_;
  std::vector<bool> productive_;
  Automaton* automaton_ = nullptr;
};

std::shared_ptr<const Automaton> Automaton::compile(const ExpressionPool& pool, RuleId root) {
  AutomatonBuilder builder(pool);
  builder.add_rules();
  return AutomatonFinisher(builder).finish(root);
}

}  // namespace mererun
