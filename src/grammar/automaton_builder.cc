#include "grammar/automaton_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace mererun {
namespace {

constexpr std::size_t kUnrolledWeight = 64;  // nodes up to which a bounded repetition is written out
constexpr std::size_t kHeavy = 1'000'000;

[[noreturn]] void fail_size(std::size_t limit, std::string_view what) {
  fail_expected(ErrorCode::kInvalidArgument, "grammar", fmt::format("at most {} {}", limit, what), "more");
}

/// The slice whose characters a free run of this class reads, each as itself. Only runs of characters that a
/// text after the run can't start with have one; the free encodings promise that.
TextSlice slice_of(const Expression& character) {
  switch (character.encoding) {
    case CharacterEncoding::kJsonFree: return TextSlice::kJsonString;
    case CharacterEncoding::kJsonFreeEscapingMarkup: return TextSlice::kJsonMarkupString;
    case CharacterEncoding::kTextFree: return TextSlice::kMarkupText;
    default: return TextSlice::kNone;
  }
}

}  // namespace

int AutomatonBuilder::add_node() {
  if (nodes_.size() >= kMaxNodes) fail_size(kMaxNodes, "states");
  nodes_.emplace_back();
  return static_cast<int>(nodes_.size()) - 1;
}

void AutomatonBuilder::add_edge(int from, ByteEdge edge) {
  if (++num_edges_ > kMaxEdges) fail_size(kMaxEdges, "transitions");
  at(from).edges.push_back(edge);
}

void AutomatonBuilder::add_call(int from, RuleId rule, int to) {
  if (++num_edges_ > kMaxEdges) fail_size(kMaxEdges, "transitions");
  at(from).calls.push_back({.rule = rule, .target = to});
}

RuleId AutomatonBuilder::add_rule(int entry, std::string name) {
  rules_.push_back({entry, std::move(name)});
  return static_cast<RuleId>(rules_.size()) - 1;
}

void AutomatonBuilder::add_rules() {
  for (RuleId rule = 0; rule < pool_.num_rules(); ++rule) add_rule(add_node(), pool_.rule_name(rule));
  for (RuleId rule = 0; rule < pool_.num_rules(); ++rule) {
    const auto body = pool_.rule_body(rule);
    MERERUN_CHECK(body.has_value(), "every rule is defined");
    const int end = add_node();
    at(end).is_end = true;
    lower(*body, rules_[static_cast<std::size_t>(rule)].entry, end, Calls::kAllowed);
  }
}

/// Nodes that an expression takes, roughly.
std::size_t AutomatonBuilder::weight(ExpressionId id) {
  const auto index = static_cast<std::size_t>(id);
  if (weights_.size() <= index) weights_.resize(index + 1, 0);
  if (weights_[index] != 0) return weights_[index];
  const Expression& expression = pool_.at(id);
  std::size_t total = 1;
  switch (expression.kind) {
    case ExpressionKind::kBytes: total = expression.bytes.size() + 1; break;
    case ExpressionKind::kClass:
      total = expression.encoding == CharacterEncoding::kText &&
                      (expression.set.empty() || expression.set.ranges().back().last < 0x80)
                  ? 1
                  : 8;
      break;
    default:
      for (const ExpressionId child : expression.children) total = std::min(kHeavy, total + weight(child));
      if (expression.kind == ExpressionKind::kRepeat || expression.kind == ExpressionKind::kLength) {
        const int turns = std::max({1, expression.min, expression.max.value_or(0)});
        total = std::min(kHeavy, total * static_cast<std::size_t>(turns));
      }
  }
  if (weights_.size() <= index) weights_.resize(index + 1, 0);
  return weights_[index] = total;
}

void AutomatonBuilder::lower(ExpressionId id, int from, int to, Calls calls) {
  const Expression& expression = pool_.at(id);
  switch (expression.kind) {
    case ExpressionKind::kNever: return;
    case ExpressionKind::kEmpty: return add_epsilon(from, to);
    case ExpressionKind::kBytes: return lower_bytes(expression.bytes, from, to);
    case ExpressionKind::kClass: return lower_class(expression, from, to);
    case ExpressionKind::kSequence: {
      int at_node = from;
      for (std::size_t i = 0; i < expression.children.size(); ++i) {
        const int next = i + 1 == expression.children.size() ? to : add_node();
        lower(expression.children[i], at_node, next, calls);
        at_node = next;
      }
      if (expression.children.empty()) add_epsilon(from, to);
      return;
    }
    case ExpressionKind::kChoice:
      for (const ExpressionId option : expression.children) {
        // Nodes of its own: a loop at the start of one option must not lead into another.
        const int begin = add_node(), end = add_node();
        add_epsilon(from, begin);
        add_epsilon(end, to);
        lower(option, begin, end, calls);
      }
      return;
    case ExpressionKind::kRepeat: return lower_repeat(expression, from, to, calls);
    case ExpressionKind::kRule:
      MERERUN_CHECK(calls == Calls::kAllowed, "a bounded pattern uses no rules");
      return add_call(from, expression.rule, to);
    case ExpressionKind::kWithout:
      MERERUN_CHECK(calls == Calls::kAllowed, "a bounded pattern uses no rules");
      return add_call(from, text_rule(expression.excluded), to);
    case ExpressionKind::kLength: return lower_length(expression, from, to);
  }
}

void AutomatonBuilder::lower_bytes(const std::string& bytes, int from, int to) {
  if (bytes.empty()) return add_epsilon(from, to);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool is_last = i + 1 == bytes.size();
    const int next = is_last ? to : add_node();
    const auto byte = static_cast<std::uint8_t>(bytes[i]);
    add_edge(from, {.target = next, .first = byte, .last = byte, .ends_character = is_last});
    from = next;
  }
}

void AutomatonBuilder::lower_repeat(const Expression& repeat, int from, int to, Calls calls) {
  const ExpressionId body = repeat.children.front();
  const bool is_free =
      pool_.at(body).kind == ExpressionKind::kClass && slice_of(pool_.at(body)) != TextSlice::kNone;
  const int turns = std::max(repeat.min, repeat.max.value_or(0));
  const bool is_small = turns <= 1 || weight(body) * static_cast<std::size_t>(turns) <= kUnrolledWeight;
  if (calls == Calls::kNone || (is_small && !is_free)) return unroll(repeat, from, to, calls);
  add_call(from, counting_rule(body, {.min = repeat.min, .max = repeat.max.value_or(-1)}), to);
}

void AutomatonBuilder::unroll(const Expression& repeat, int from, int to, Calls calls) {
  const ExpressionId body = repeat.children.front();
  int node = add_node();
  add_epsilon(from, node);
  for (int i = 0; i < repeat.min; ++i) {
    const int next = add_node();
    lower(body, node, next, calls);
    node = next;
  }
  if (!repeat.max) {
    const int loop = add_node(), back = add_node();
    add_epsilon(node, loop);
    lower(body, loop, back, calls);
    add_epsilon(back, loop);
    return add_epsilon(loop, to);
  }
  for (int i = repeat.min; i < *repeat.max; ++i) {
    add_epsilon(node, to);
    const int next = add_node();
    lower(body, node, next, calls);
    node = next;
  }
  add_epsilon(node, to);
}

RuleId AutomatonBuilder::rule_of(ExpressionId id) {
  if (pool_.at(id).kind == ExpressionKind::kRule) return pool_.at(id).rule;
  const auto [at_rule, is_new] = body_rules_.try_emplace(id, 0);
  if (!is_new) return at_rule->second;
  const int entry = add_node(), end = add_node();
  at(end).is_end = true;
  const RuleId rule = at_rule->second = add_rule(entry, "repeated part");
  lower(id, entry, end, Calls::kAllowed);
  return rule;
}

/// A rule of one node that counts its turns; a character is read by edges from the node to itself, anything
/// else by a call.
RuleId AutomatonBuilder::counting_rule(ExpressionId body, Counter counter) {
  const auto [at_rule, is_new] = counting_rules_.try_emplace({body, {counter.min, counter.max}}, 0);
  if (!is_new) return at_rule->second;
  const int node = add_node();
  at(node).counter = counter;
  at(node).is_end = true;
  const RuleId rule = at_rule->second = add_rule(node, "repetition");
  const Expression& expression = pool_.at(body);
  if (expression.kind == ExpressionKind::kClass) {
    lower_class(expression, node, node);
    at(node).slice = slice_of(expression);
  } else {
    const RuleId callee = rule_of(body);
    add_call(node, callee, node);
  }
  return rule;
}

void AutomatonBuilder::lower_set(const CodePointSet& set, int from, int to) {
  // Sequences share their endings: "the rest of a three-byte character" is one node, whatever its lead.
  std::map<std::vector<std::pair<int, int>>, int> endings;
  for (const Utf8Sequence& sequence : utf8_sequences(set)) {
    std::vector<std::pair<int, int>> ending;
    int target = to;
    for (int i = sequence.size - 1; i > 0; --i) {
      const auto [first, last] = sequence.bytes[i];
      ending.emplace_back(first, last);
      const auto [known, is_new] = endings.try_emplace(ending, -1);
      if (is_new) {
        known->second = add_node();
        add_edge(known->second, {target, first, last, i == sequence.size - 1});
      }
      target = known->second;
    }
    add_edge(from, {target, sequence.bytes[0].first, sequence.bytes[0].last, sequence.size == 1});
  }
}

void AutomatonBuilder::lower_class(const Expression& character, int from, int to) {
  if (character.encoding == CharacterEncoding::kText) return lower_set(character.set, from, to);
  if (character.encoding == CharacterEncoding::kTextFree)
    return lower_set(CodePointSet::one('<').complement(), from, to);
  static const CodePointSet kEscaped({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  if (slice_of(character) != TextSlice::kNone) {
    CodePointSet escaped = kEscaped;
    if (character.encoding == CharacterEncoding::kJsonFreeEscapingMarkup)
      escaped = escaped.united(CodePointSet::one('<'));
    lower_set(escaped.complement(), from, to);
    return lower_free_json_escapes(from, to);
  }
  lower_set(character.set.without(kEscaped), from, to);
  const CodePointSet escaped = character.set.intersected(kEscaped);
  if (!escaped.empty()) lower_json_escapes(escaped, from, to);
}

/// The shortest escape of each character, in the spelling of common JSON writers.
void AutomatonBuilder::lower_json_escapes(const CodePointSet& set, int from, int to) {
  constexpr std::pair<char, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                              {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  const auto byte_edge = [&](int source, int target, char byte, bool is_last) {
    const auto value = static_cast<std::uint8_t>(byte);
    add_edge(source, {target, value, value, is_last});
  };
  const int backslash = add_node();
  byte_edge(from, backslash, '\\', false);
  CodePointSet long_form = set;
  for (const auto& [code_point, letter] : kShort) {
    const CodePointSet one = CodePointSet::one(static_cast<std::uint32_t>(code_point));
    if (set.intersected(one).empty()) continue;
    byte_edge(backslash, to, letter, true);
    long_form = long_form.without(one);
  }
  if (long_form.empty()) return;
  int node = backslash;
  for (const char c : std::string_view("u00")) {
    const int next = add_node();
    byte_edge(node, next, c, false);
    node = next;
  }
  for (std::uint32_t high = 0; high < 2; ++high) {
    const int digit = add_node();
    byte_edge(node, digit, static_cast<char>('0' + high), false);
    for (std::uint32_t low = 0; low < 16; ++low)
      if (long_form.contains(high * 16 + low)) byte_edge(digit, to, "0123456789abcdef"[low], true);
  }
}

/// Every escape that JSON knows but lone surrogates, which are no characters.
void AutomatonBuilder::lower_free_json_escapes(int from, int to) {
  const auto edges = [&](int source, int target, std::string_view ranges, bool is_last) {
    for (std::size_t i = 0; i < ranges.size(); i += 2)
      add_edge(source, {target, static_cast<std::uint8_t>(ranges[i]),
                        static_cast<std::uint8_t>(ranges[i + 1]), is_last});
  };
  constexpr std::string_view kHex = "09afAF";
  const auto then_hex = [&](int target, bool is_last) {
    const int node = add_node();
    edges(node, target, kHex, is_last);
    return node;
  };
  const int backslash = add_node();
  edges(from, backslash, "\\\\", false);
  edges(backslash, to, "\"\"\\\\//bbffnnrrtt", true);
  const int one_more = then_hex(to, true), two_more = then_hex(one_more, false);
  const int three_more = then_hex(two_more, false);
  const int digits = add_node();  // behind \u
  edges(backslash, digits, "uu", false);
  edges(digits, three_more, "09acefACEF", false);
  const int after_d = add_node();
  edges(digits, after_d, "ddDD", false);
  edges(after_d, two_more, "07", false);
  // A high surrogate, then \u and a low one.
  const int low_tail = add_node(), low_d = add_node(), low_u = add_node(), low_backslash = add_node();
  edges(low_tail, two_more, "cfCF", false);
  edges(low_d, low_tail, "ddDD", false);
  edges(low_u, low_d, "uu", false);
  edges(low_backslash, low_u, "\\\\", false);
  const int high_two = then_hex(then_hex(low_backslash, false), false);
  edges(after_d, high_two, "89abAB", false);
}

/// Text in which no excluded string occurs. A state is the longest beginning of such a string that the text
/// ends in (Aho and Corasick 1975); '<' stands only at their start, so every miss falls back to the first
/// state or to "<".
RuleId AutomatonBuilder::text_rule(const std::vector<std::string>& excluded) {
  const auto [at_rule, is_new] = text_rules_.try_emplace(excluded, 0);
  if (!is_new) return at_rule->second;
  std::map<std::string, int> states;
  for (const std::string& text : excluded)
    for (std::size_t size = 0; size < text.size(); ++size) states.emplace(text.substr(0, size), -1);
  for (auto& [prefix, node] : states) {
    node = add_node();
    at(node).is_end = true;
  }
  const int first = states.at("");
  const int tails = add_node();  // of characters beyond ASCII: the edges of all states lead into its own
  lower_set(CodePointSet({{0x80, CodePointSet::kLast}}), tails, first);
  const std::vector<ByteEdge> leads = at(tails).edges;
  for (const auto& [prefix, node] : states) {
    for (const ByteEdge& lead : leads) add_edge(node, lead);
    for (int byte = 0; byte < 0x80; ++byte) {
      const std::string longer = prefix + static_cast<char>(byte);
      if (std::find(excluded.begin(), excluded.end(), longer) != excluded.end()) continue;
      auto next = states.find(longer);
      if (next == states.end()) next = states.find(byte == '<' ? "<" : "");
      const auto value = static_cast<std::uint8_t>(byte);
      std::vector<ByteEdge>& edges = at(node).edges;
      if (edges.back().target == next->second && edges.back().last + 1 == value && edges.back().last < 0x80)
        edges.back().last = value;
      else
        add_edge(node, {next->second, value, value, true});
    }
  }
  at(first).slice = TextSlice::kMarkupText;
  return at_rule->second = add_rule(first, "text");
}

/// Copies the nodes of the body once for every number of characters read so far.
void AutomatonBuilder::lower_length(const Expression& length, int from, int to) {
  AutomatonBuilder body(pool_);
  const int begin = body.add_node(), end = body.add_node();
  body.lower(length.children.front(), begin, end, Calls::kNone);
  const int limit = length.max.value_or(length.min);
  std::map<std::pair<int, int>, int> copies;  // (node, characters) -> node here
  std::vector<std::pair<int, int>> open;
  const auto copy_of = [&](int node, int count) {
    const auto [copy, is_new] = copies.try_emplace({node, count}, -1);
    if (is_new) {
      copy->second = add_node();
      open.emplace_back(node, count);
    }
    return copy->second;
  };
  add_epsilon(from, copy_of(begin, 0));
  while (!open.empty()) {
    const auto [node, count] = open.back();
    open.pop_back();
    const int copy = copies.at({node, count});
    if (node == end && count >= length.min) add_epsilon(copy, to);
    for (const int next : body.at(node).epsilons) add_epsilon(copy, copy_of(next, count));
    for (const ByteEdge& edge : body.at(node).edges) {
      int next_count = count + (edge.ends_character ? 1 : 0);
      if (next_count > limit) {
        if (length.max) continue;
        next_count = limit;
      }
      ByteEdge copied = edge;
      copied.target = copy_of(edge.target, next_count);
      add_edge(copy, copied);
    }
  }
}

}  // namespace mererun
