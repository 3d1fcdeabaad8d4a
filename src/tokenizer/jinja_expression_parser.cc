#include <fmt/format.h>

#include "tokenizer/jinja_parser.h"
#include "tokenizer/jinja_parser_nesting.h"

namespace mererun::jinja {
namespace {

constexpr int kMaxDepth = 400;

const Comparison* comparison_of(const Token& token) {
  static const std::unordered_map<std::string, Comparison> kComparisons = {
      {"==", Comparison::kEqual},     {"!=", Comparison::kNotEqual}, {"<", Comparison::kLess},
      {"<=", Comparison::kLessEqual}, {">", Comparison::kGreater},   {">=", Comparison::kGreaterEqual},
  };
  if (token.kind != TokenKind::kOperator) return nullptr;
  const auto it = kComparisons.find(token.text);
  return it == kComparisons.end() ? nullptr : &it->second;
}

}  // namespace

ExpressionPtr Parser::make(Expression::Kind kind) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = peek().line;
  return expression;
}

ExpressionPtr Parser::make_constant(Value value) const {
  ExpressionPtr expression = make(Expression::Kind::kConstant);
  expression->constant = std::move(value);
  return expression;
}

ExpressionPtr Parser::finish(ExpressionPtr expression) const {
  int deepest = 0;
  const auto visit = [&](const ExpressionPtr& child) {
    if (child) deepest = std::max(deepest, child->depth);
  };
  for (const auto& operand : expression->operands) visit(operand);
  for (const auto& argument : expression->arguments.positional) visit(argument);
  for (const auto& [name, argument] : expression->arguments.keyword) visit(argument);
  visit(expression->arguments.star);
  visit(expression->arguments.double_star);
  expression->depth = deepest + 1;
  if (expression->depth > kMaxDepth) error("expected an expression of fewer nested or chained parts");
  return expression;
}

template <typename... Operands>
ExpressionPtr Parser::make_with(Expression::Kind kind, int line, Operands... operands) const {
  ExpressionPtr expression = make(kind);
  expression->line = line;
  (expression->operands.push_back(std::move(operands)), ...);
  return finish(std::move(expression));
}

bool Parser::at_expression_end(std::string_view end_name) const {
  const TokenKind kind = peek().kind;
  return kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd || is_operator(")") ||
         (!end_name.empty() && is_name(end_name));
}

ExpressionPtr Parser::parse_tuple(Allow allow, std::string_view end_name, bool in_parentheses) {
  ExpressionPtr tuple = make(Expression::Kind::kTuple);
  bool has_comma = false;
  while (!at_expression_end(end_name)) {
    tuple->operands.push_back(parse_expression(allow));
    if (!skip_operator(",")) break;
    has_comma = true;
  }
  if (tuple->operands.size() == 1 && !has_comma) return std::move(tuple->operands[0]);
  if (tuple->operands.empty() && !in_parentheses) error_expected("an expression");
  return finish(std::move(tuple));
}

ExpressionPtr Parser::parse_target(std::string_view end_name, bool allow_namespace) {
  const Nested nested(*this);
  ExpressionPtr tuple = make(Expression::Kind::kTuple);
  bool has_comma = false;
  while (!at_expression_end(end_name) && !is_operator("=")) {
    tuple->operands.push_back(parse_target_part(allow_namespace));
    if (!skip_operator(",")) break;
    has_comma = true;
  }
  if (tuple->operands.empty()) error_expected("a name to assign to");
  if (tuple->operands.size() == 1 && !has_comma) return std::move(tuple->operands[0]);
  return finish(std::move(tuple));
}

ExpressionPtr Parser::parse_target_part(bool allow_namespace) {
  if (skip_operator("(")) {
    ExpressionPtr target = parse_target({}, allow_namespace);
    expect_operator(")");
    return target;
  }
  ExpressionPtr target = make(Expression::Kind::kName);
  const std::string name = expect_name();
  for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name == reserved) error(fmt::format("expected a name to assign to, got '{}'", name));
  }
  target->symbol = intern(name);
  target->constant = Value::text(shared_text(name));
  if (allow_namespace && skip_operator(".")) {
    target->kind = Expression::Kind::kNamespaceField;
    target->constant = Value::text(shared_text(expect_name()));
  }
  return target;
}

ExpressionPtr Parser::parse_expression(Allow allow) {
  if (allow == Allow::kConditional) return parse_conditional();
  const Nested nested(*this);
  return parse_or();
}

ExpressionPtr Parser::parse_conditional() {
  const Nested nested(*this);
  ExpressionPtr value = parse_or();
  while (is_name("if")) {
    const int line = next().line;
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise;
    if (skip_name("else")) otherwise = parse_conditional();
    value = make_with(Expression::Kind::kConditional, line, std::move(condition), std::move(value),
                      std::move(otherwise));
  }
  return value;
}

ExpressionPtr Parser::parse_or() {
  ExpressionPtr left = parse_and();
  while (is_name("or")) {
    const int line = next().line;
    left = make_with(Expression::Kind::kOr, line, std::move(left), parse_and());
  }
  return left;
}

ExpressionPtr Parser::parse_and() {
  ExpressionPtr left = parse_not();
  while (is_name("and")) {
    const int line = next().line;
    left = make_with(Expression::Kind::kAnd, line, std::move(left), parse_not());
  }
  return left;
}

ExpressionPtr Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nested nested(*this);
  const int line = next().line;
  return make_with(Expression::Kind::kNot, line, parse_not());
}

ExpressionPtr Parser::parse_compare() {
  ExpressionPtr compare = make(Expression::Kind::kCompare);
  compare->operands.push_back(parse_sum());
  while (true) {
    if (const Comparison* comparison = comparison_of(peek())) {
      compare->comparisons.push_back(*comparison);
      next();
    } else if (skip_name("in")) {
      compare->comparisons.push_back(Comparison::kIn);
    } else if (is_name("not") && is_name("in", 1)) {
      compare->comparisons.push_back(Comparison::kNotIn);
      next();
      next();
    } else {
      break;
    }
    compare->operands.push_back(parse_sum());
  }
  if (compare->comparisons.empty()) return std::move(compare->operands[0]);
  return finish(std::move(compare));
}

ExpressionPtr Parser::parse_sum() {
  ExpressionPtr left = parse_concat();
  while (is_operator("+") || is_operator("-")) {
    const Token& token = next();
    const Operator operation = token.text == "+" ? Operator::kAdd : Operator::kSubtract;
    left = make_with(Expression::Kind::kBinary, token.line, std::move(left), parse_concat());
    left->operation = operation;
  }
  return left;
}

ExpressionPtr Parser::parse_concat() {
  ExpressionPtr first = parse_product();
  if (!is_operator("~")) return first;
  ExpressionPtr concat = make(Expression::Kind::kConcat);
  concat->operands.push_back(std::move(first));
  while (skip_operator("~")) concat->operands.push_back(parse_product());
  return finish(std::move(concat));
}

ExpressionPtr Parser::parse_product() {
  ExpressionPtr left = parse_power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const Token& token = next();
    Operator operation = Operator::kModulo;
    if (token.text == "*") operation = Operator::kMultiply;
    if (token.text == "/") operation = Operator::kDivide;
    if (token.text == "//") operation = Operator::kFloorDivide;
    left = make_with(Expression::Kind::kBinary, token.line, std::move(left), parse_power());
    left->operation = operation;
  }
  return left;
}

ExpressionPtr Parser::parse_power() {
  ExpressionPtr left = parse_unary(true);
  while (is_operator("**")) {  // to the left, unlike Python's
    const int line = next().line;
    left = make_with(Expression::Kind::kBinary, line, std::move(left), parse_unary(true));
    left->operation = Operator::kPower;
  }
  return left;
}

ExpressionPtr Parser::parse_unary(bool with_filters) {
  ExpressionPtr expression;
  if (is_operator("-") || is_operator("+")) {
    const Nested nested(*this);
    const Token& token = next();
    const Operator operation = token.text == "-" ? Operator::kNegate : Operator::kPlus;
    expression = make_with(Expression::Kind::kUnary, token.line, parse_unary(false));
    expression->operation = operation;
  } else {
    expression = parse_primary();
  }
  expression = parse_postfix(std::move(expression));
  return with_filters ? parse_filters_and_tests(std::move(expression)) : std::move(expression);
}

ExpressionPtr Parser::parse_primary() {
  const Token& token = peek();
  switch (token.kind) {
    case TokenKind::kName: return parse_name();
    case TokenKind::kString: {
      std::string text;
      while (peek().kind == TokenKind::kString) text += next().text;
      return make_constant(Value::text(shared_text(std::move(text))));
    }
    case TokenKind::kInteger: return make_constant(Value::integer(next().integer));
    case TokenKind::kFloat: return make_constant(Value::number(next().number));
    default: break;
  }
  if (skip_operator("(")) {
    ExpressionPtr inner = parse_tuple(Allow::kConditional, {}, true);
    expect_operator(")");
    return inner;
  }
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  error_expected("an expression");
}

ExpressionPtr Parser::parse_name() {
  ExpressionPtr expression = make(Expression::Kind::kName);
  const std::string name = next().text;
  if (name == "true" || name == "True") return make_constant(Value::boolean(true));
  if (name == "false" || name == "False") return make_constant(Value::boolean(false));
  if (name == "none" || name == "None") return make_constant(Value());
  expression->symbol = intern(name);
  expression->constant = Value::text(shared_text(name));
  for (Macro* macro : open_macros_) {
    macro->uses_caller = macro->uses_caller || expression->symbol == kSymbolCaller;
    macro->uses_varargs = macro->uses_varargs || expression->symbol == kSymbolVarargs;
    macro->uses_kwargs = macro->uses_kwargs || expression->symbol == kSymbolKwargs;
  }
  return expression;
}

ExpressionPtr Parser::parse_list() {
  ExpressionPtr list = make(Expression::Kind::kList);
  expect_operator("[");
  while (!is_operator("]")) {
    list->operands.push_back(parse_expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("]");
  return finish(std::move(list));
}

ExpressionPtr Parser::parse_dict() {
  ExpressionPtr dict = make(Expression::Kind::kDict);
  expect_operator("{");
  while (!is_operator("}")) {
    dict->operands.push_back(parse_expression());
    expect_operator(":");
    dict->operands.push_back(parse_expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("}");
  return finish(std::move(dict));
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr base) {
  while (true) {
    if (is_operator(".") || is_operator("[")) {
      base = parse_subscript(std::move(base));
    } else if (is_operator("(")) {
      base = parse_call_of(std::move(base));
    } else {
      return base;
    }
  }
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr base) {
  while (true) {
    if (skip_operator("|")) {
      base = parse_filter(std::move(base));
    } else if (skip_name("is")) {
      base = parse_test(std::move(base));
    } else if (is_operator("(")) {
      base = parse_call_of(std::move(base));
    } else {
      return base;
    }
  }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr base) {
  const int line = peek().line;
  if (skip_operator(".")) {
    if (peek().kind == TokenKind::kInteger) {
      return make_with(Expression::Kind::kItem, line, std::move(base),
                       make_constant(Value::integer(next().integer)));
    }
    const std::string name = expect_name();
    ExpressionPtr attribute = make_with(Expression::Kind::kAttribute, line, std::move(base));
    attribute->constant = Value::text(shared_text(name));
    return attribute;
  }
  expect_operator("[");
  const auto is_bound_end = [&] { return is_operator(":") || is_operator("]"); };
  ExpressionPtr bounds[3];
  bool is_slice = false;
  if (!is_operator(":")) {
    // A tuple as index is a key of a dict.
    bounds[0] = parse_expression();
    if (is_operator(",")) {
      ExpressionPtr tuple = make(Expression::Kind::kTuple);
      tuple->operands.push_back(std::move(bounds[0]));
      while (skip_operator(",")) tuple->operands.push_back(parse_expression());
      bounds[0] = finish(std::move(tuple));
    }
  }
  for (int i = 1; i < 3 && skip_operator(":"); ++i) {
    is_slice = true;
    if (!is_bound_end()) bounds[i] = parse_expression();
  }
  expect_operator("]");
  if (!is_slice) return make_with(Expression::Kind::kItem, line, std::move(base), std::move(bounds[0]));
  return make_with(Expression::Kind::kSlice, line, std::move(base), std::move(bounds[0]),
                   std::move(bounds[1]), std::move(bounds[2]));
}

CallArguments Parser::parse_arguments() {
  CallArguments arguments;
  expect_operator("(");
  while (!is_operator(")")) {
    if (skip_operator("**")) {
      if (arguments.double_star) error("expected one ** argument");
      arguments.double_star = parse_expression();
    } else if (skip_operator("*")) {
      if (arguments.star || arguments.double_star) error("expected one * argument, before **");
      arguments.star = parse_expression();
    } else if (peek().kind == TokenKind::kName && is_operator("=", 1)) {
      if (arguments.double_star) error("expected keyword arguments before **");
      const std::string name = next().text;
      next();
      arguments.keyword.emplace_back(name, parse_expression());
    } else {
      if (arguments.star || arguments.double_star || !arguments.keyword.empty()) {
        error("expected positional arguments before others");
      }
      arguments.positional.push_back(parse_expression());
    }
    if (!skip_operator(",")) break;
  }
  expect_operator(")");
  return arguments;
}

ExpressionPtr Parser::parse_call_of(ExpressionPtr base) {
  ExpressionPtr call = make(Expression::Kind::kCall);
  call->operands.push_back(std::move(base));
  call->arguments = parse_arguments();
  return finish(std::move(call));
}

/// A filter whose '|' is consumed already.
ExpressionPtr Parser::parse_filter(ExpressionPtr base) {
  ExpressionPtr filter = make(Expression::Kind::kFilter);
  filter->operands.push_back(std::move(base));
  filter->constant = Value::text(shared_text(expect_name()));
  if (is_operator("(")) filter->arguments = parse_arguments();
  return finish(std::move(filter));
}

/// Filters of a block: name | name ..., applied to the block's text.
ExpressionPtr Parser::parse_filter_chain() {
  ExpressionPtr chain = parse_filter(nullptr);
  while (skip_operator("|")) chain = parse_filter(std::move(chain));
  return chain;
}

ExpressionPtr Parser::parse_test(ExpressionPtr base) {
  const bool is_negated = skip_name("not");
  ExpressionPtr test = make(Expression::Kind::kTest);
  test->operands.push_back(std::move(base));
  const int line = test->line;
  test->constant = Value::text(shared_text(expect_name()));
  const TokenKind kind = peek().kind;
  const bool has_bare_argument =
      kind == TokenKind::kString || kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
      is_operator("[") || is_operator("{") ||
      (kind == TokenKind::kName && !is_name("else") && !is_name("or") && !is_name("and") && !is_name("is"));
  if (is_operator("(")) {
    test->arguments = parse_arguments();
  } else if (has_bare_argument) {
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  test = finish(std::move(test));
  return is_negated ? make_with(Expression::Kind::kNot, line, std::move(test)) : std::move(test);
}

}  // namespace mererun::jinja
