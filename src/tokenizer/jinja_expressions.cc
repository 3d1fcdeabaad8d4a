// Evaluation of expressions.
#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_interpreter_guards.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_text.h"

namespace mererun::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  using Node = Expression::Kind;
  if (expression.kind == Node::kConstant) return expression.constant;
  const DepthGuard depth(*this);
  heap_.charge_steps(1);
  line_ = expression.line;
  const auto operand = [&](std::size_t i) { return evaluate(*expression.operands[i]); };
  switch (expression.kind) {
    case Node::kName: return evaluate_name(expression);
    case Node::kAttribute: {
      const Value base = operand(0);
      line_ = expression.line;
      return attribute(base, expression.constant);
    }
    case Node::kItem: {
      const Value base = operand(0);
      const Value key = operand(1);
      line_ = expression.line;
      return item(base, key);
    }
    case Node::kSlice: return evaluate_slice(expression);
    case Node::kList:
    case Node::kTuple: {
      std::vector<Value> items;
      for (const auto& element : expression.operands) items.push_back(evaluate(*element));
      return heap_.sequence(expression.kind == Node::kList ? Kind::kList : Kind::kTuple, std::move(items));
    }
    case Node::kDict: return evaluate_dict(expression);
    case Node::kUnary: return unary(expression.operation, operand(0));
    case Node::kBinary: return evaluate_binary(expression);
    case Node::kCompare: return evaluate_compare(expression);
    case Node::kAnd: {
      Value left = operand(0);
      return truthy(left) ? operand(1) : left;
    }
    case Node::kOr: {
      Value left = operand(0);
      return truthy(left) ? left : operand(1);
    }
    case Node::kNot: return Value::boolean(!truthy(operand(0)));
    case Node::kConcat: return evaluate_concat(expression);
    case Node::kConditional: return evaluate_conditional(expression);
    case Node::kCall: return evaluate_call(expression);
    case Node::kFilter: return evaluate_filter(expression, nullptr);
    case Node::kTest: return evaluate_test(expression);
    default: break;
  }
  fail("expected a value, got a target of an assignment");
}

Value Interpreter::evaluate_name(const Expression& expression) {
  if (const Value* value = find_variable(expression.symbol)) return *value;
  return Value::undefined_variable(expression.constant.as_text());
}

Value Interpreter::evaluate_slice(const Expression& expression) {
  const auto bound = [&](std::size_t i) {
    return expression.operands[i] == nullptr ? Value() : evaluate(*expression.operands[i]);
  };
  const Value base = evaluate(*expression.operands[0]);
  const Value start = bound(1);
  const Value stop = bound(2);
  const Value step = bound(3);
  line_ = expression.line;
  return slice(heap_, base, start, stop, step);
}

Value Interpreter::evaluate_dict(const Expression& expression) {
  const Value dict = heap_.dict();
  for (std::size_t i = 0; i + 1 < expression.operands.size(); i += 2) {
    const Value key = evaluate(*expression.operands[i]);
    dict.as_dict().set(heap_, key, evaluate(*expression.operands[i + 1]));
  }
  return dict;
}

Value Interpreter::evaluate_binary(const Expression& expression) {
  const Value left = evaluate(*expression.operands[0]);
  const Value right = evaluate(*expression.operands[1]);
  line_ = expression.line;
  return binary(heap_, expression.operation, left, right);
}

bool Interpreter::compare(Comparison comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Comparison::kEqual: return equal(heap_, a, b);
    case Comparison::kNotEqual: return !equal(heap_, a, b);
    case Comparison::kLess: return less(heap_, a, b);
    case Comparison::kGreater: return less(heap_, b, a);
    // Not the negation of the opposite: with NaN all four are false.
    case Comparison::kLessEqual: return less(heap_, a, b) || equal(heap_, a, b);
    case Comparison::kGreaterEqual: return less(heap_, b, a) || equal(heap_, a, b);
    case Comparison::kIn: return contains(b, a);
    case Comparison::kNotIn: return !contains(b, a);
  }
  return false;
}

Value Interpreter::evaluate_compare(const Expression& expression) {
  Value left = evaluate(*expression.operands[0]);
  for (std::size_t i = 0; i < expression.comparisons.size(); ++i) {
    Value right = evaluate(*expression.operands[i + 1]);
    line_ = expression.line;
    if (!compare(expression.comparisons[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_concat(const Expression& expression) {
  TextBuilder out(heap_);
  for (const auto& part : expression.operands) append_text(out, evaluate(*part));
  return heap_.string(out.take());
}

Value Interpreter::evaluate_conditional(const Expression& expression) {
  if (truthy(evaluate(*expression.operands[0]))) return evaluate(*expression.operands[1]);
  if (expression.operands[2] != nullptr) return evaluate(*expression.operands[2]);
  return Value::undefined("the condition of an inline if without else was false");
}

Arguments Interpreter::evaluate_arguments(const CallArguments& arguments) {
  Arguments out;
  for (const auto& argument : arguments.positional) out.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : arguments.keyword) out.keyword.emplace_back(name, evaluate(*argument));
  if (arguments.star != nullptr) {
    std::vector<Value> more = elements(evaluate(*arguments.star));
    heap_.charge_bytes(more.size() * sizeof(Value));
    for (Value& value : more) out.positional.push_back(std::move(value));
  }
  if (arguments.double_star != nullptr) {
    const Value more = evaluate(*arguments.double_star);
    if (!more.is(Kind::kDict)) {
      fail(fmt::format("**: expected a dict of arguments, got a value of type {}", type_name(more)));
    }
    for (const auto& [name, value] : more.as_dict().entries()) {
      if (!name.is_string()) fail("**: expected text as argument names");
      out.keyword.emplace_back(name.as_string(), value);
    }
  }
  return out;
}

Value Interpreter::evaluate_call(const Expression& expression) {
  const Expression& target = *expression.operands[0];
  if (target.kind == Expression::Kind::kAttribute) {
    // A method is called where it is found, without making an object of it.
    const Value base = evaluate(*target.operands[0]);
    if (const Method method = find_method(base.kind(), target.constant.as_string())) {
      const Arguments arguments = evaluate_arguments(expression.arguments);
      line_ = expression.line;
      return call_method(*this, method, base, arguments);
    }
    line_ = expression.line;
    const Value callee = attribute(base, target.constant);
    const Arguments arguments = evaluate_arguments(expression.arguments);
    line_ = expression.line;
    return call(callee, arguments);
  }
  const Value callee = evaluate(target);
  const Arguments arguments = evaluate_arguments(expression.arguments);
  line_ = expression.line;
  return call(callee, arguments);
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) fail(callee.undefined_reason());
  if (!callee.is(Kind::kCallable)) {
    fail(fmt::format("expected a function to call, got a value of type {}", type_name(callee)));
  }
  const DepthGuard depth(*this);
  return callee.as_callable().function(*this, arguments);
}

Value Interpreter::evaluate_filter(const Expression& expression, const Value* block_text) {
  const DepthGuard depth(*this);
  // A filter block is a chain whose innermost input is the block's text.
  Value input;
  if (expression.operands[0] == nullptr) {
    if (block_text == nullptr) fail("expected a value to filter");
    input = *block_text;
  } else if (block_text != nullptr) {
    input = evaluate_filter(*expression.operands[0], block_text);
  } else {
    input = evaluate(*expression.operands[0]);
  }
  const Arguments arguments = evaluate_arguments(expression.arguments);
  line_ = expression.line;
  return apply_filter(expression.constant.as_string(), input, arguments);
}

Value Interpreter::evaluate_test(const Expression& expression) {
  const Value input = evaluate(*expression.operands[0]);
  const Arguments arguments = evaluate_arguments(expression.arguments);
  line_ = expression.line;
  return Value::boolean(apply_test(expression.constant.as_string(), input, arguments));
}

Value Interpreter::apply_filter(std::string_view name, const Value& input, const Arguments& arguments) {
  const Filter filter = find_filter(name);
  if (filter == nullptr) fail(fmt::format("expected a known filter, got '{}'", name));
  const DepthGuard depth(*this);  // map may apply itself
  heap_.charge_steps(1);
  return filter(*this, input, arguments);
}

bool Interpreter::apply_test(std::string_view name, const Value& input, const Arguments& arguments) {
  const Test test = find_test(name);
  if (test == nullptr) fail(fmt::format("expected a known test, got '{}'", name));
  heap_.charge_steps(1);
  return test(*this, input, arguments);
}

}  // namespace mererun::jinja
