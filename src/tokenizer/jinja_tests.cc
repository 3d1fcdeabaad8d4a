// The tests of "value is test".
#include <fmt/format.h>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_text.h"

namespace mererun::jinja {
namespace {

/// Tests without arguments, by what they ask of the value.
template <bool (*kPredicate)(const Value&)>
bool simple(Interpreter&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("test", arguments, {});
  return kPredicate(input);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_integer(const Value& v) { return v.is(Kind::kInt); }
bool is_float(const Value& v) { return v.is(Kind::kFloat); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
bool is_escaped(const Value& v) { return v.is_markup(); }
// An undefined value counts as an empty sequence and can even be called (which fails), as in Jinja2.
bool is_sequence(const Value& v) {
  return v.is_string() || v.is(Kind::kList) || v.is(Kind::kTuple) || v.is(Kind::kRange) ||
         v.is(Kind::kDict) || v.is_undefined();
}
bool is_iterable(const Value& v) {
  return v.is_string() || v.is_sequence_object() || v.is(Kind::kDict) || v.is_undefined();
}
bool is_callable(const Value& v) { return v.is(Kind::kCallable) || v.is_undefined(); }

bool test_lower(Interpreter& in, const Value& input, const Arguments&) {
  if (input.is_string()) in.heap().charge_characters(input.as_string().size());
  return is_lower(to_text(in.heap(), input));
}
bool test_upper(Interpreter& in, const Value& input, const Arguments&) {
  if (input.is_string()) in.heap().charge_characters(input.as_string().size());
  return is_upper(to_text(in.heap(), input));
}

bool leaves(Interpreter& in, const Value& input, const Value& divisor, Integer remainder) {
  const Value rest = binary(in.heap(), Operator::kModulo, input, divisor);
  return rest.is_number() && equal(in.heap(), rest, Value::integer(remainder));
}

bool test_odd(Interpreter& in, const Value& input, const Arguments&) {
  return leaves(in, input, Value::integer(2), 1);
}
bool test_even(Interpreter& in, const Value& input, const Arguments&) {
  return leaves(in, input, Value::integer(2), 0);
}
bool test_divisibleby(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("divisibleby", arguments, {"num"}, 1);
  return leaves(in, input, bound.value(0), 0);
}

const Value& other_of(const Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.keyword.empty()) {
    fail(fmt::format("test: expected one value to compare with, got {}", arguments.positional.size()));
  }
  return arguments.positional[0];
}

bool test_eq(Interpreter& in, const Value& input, const Arguments& arguments) {
  return equal(in.heap(), input, other_of(arguments));
}
bool test_ne(Interpreter& in, const Value& input, const Arguments& arguments) {
  return !equal(in.heap(), input, other_of(arguments));
}
bool test_lt(Interpreter& in, const Value& input, const Arguments& arguments) {
  return less(in.heap(), input, other_of(arguments));
}
bool test_gt(Interpreter& in, const Value& input, const Arguments& arguments) {
  return less(in.heap(), other_of(arguments), input);
}
bool test_le(Interpreter& in, const Value& input, const Arguments& arguments) {
  return test_lt(in, input, arguments) || test_eq(in, input, arguments);
}
bool test_ge(Interpreter& in, const Value& input, const Arguments& arguments) {
  return test_gt(in, input, arguments) || test_eq(in, input, arguments);
}
bool test_in(Interpreter& in, const Value& input, const Arguments& arguments) {
  return in.contains(other_of(arguments), input);
}

bool test_sameas(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Value& other = other_of(arguments);
  if (input.kind() != other.kind()) return false;
  if (input.is_string()) return input.as_text() == other.as_text() || input.as_string() == other.as_string();
  if (input.is_number() || input.is_none() || input.is_undefined()) return equal(in.heap(), input, other);
  return input.identity() == other.identity();
}

bool test_filter(Interpreter& in, const Value& input, const Arguments&) {
  return find_filter(to_text(in.heap(), input)) != nullptr;
}
bool test_test(Interpreter& in, const Value& input, const Arguments&) {
  return find_test(to_text(in.heap(), input)) != nullptr;
}

}  // namespace

Test find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> kTests = {
      {"!=", test_ne},
      {"<", test_lt},
      {"<=", test_le},
      {"==", test_eq},
      {">", test_gt},
      {">=", test_ge},
      {"boolean", simple<is_boolean>},
      {"callable", simple<is_callable>},
      {"defined", simple<is_defined>},
      {"divisibleby", test_divisibleby},
      {"eq", test_eq},
      {"equalto", test_eq},
      {"escaped", simple<is_escaped>},
      {"even", test_even},
      {"false", simple<is_false>},
      {"filter", test_filter},
      {"float", simple<is_float>},
      {"ge", test_ge},
      {"greaterthan", test_gt},
      {"gt", test_gt},
      {"in", test_in},
      {"integer", simple<is_integer>},
      {"iterable", simple<is_iterable>},
      {"le", test_le},
      {"lessthan", test_lt},
      {"lower", test_lower},
      {"lt", test_lt},
      {"mapping", simple<is_mapping>},
      {"ne", test_ne},
      {"none", simple<is_none>},
      {"number", simple<is_number>},
      {"odd", test_odd},
      {"sameas", test_sameas},
      {"sequence", simple<is_sequence>},
      {"string", simple<is_string>},
      {"test", test_test},
      {"true", simple<is_true>},
      {"undefined", simple<is_undefined>},
      {"upper", test_upper},
  };
  const auto it = kTests.find(name);
  return it == kTests.end() ? nullptr : it->second;
}

}  // namespace mererun::jinja
