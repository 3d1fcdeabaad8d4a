#include "tokenizer/jinja_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "tokenizer/jinja_text.h"

namespace mererun::jinja {
namespace {

std::string_view symbol_of(Operator operation) {
  switch (operation) {
    case Operator::kAdd: return "+";
    case Operator::kSubtract:
    case Operator::kNegate: return "-";
    case Operator::kMultiply: return "*";
    case Operator::kDivide: return "/";
    case Operator::kFloorDivide: return "//";
    case Operator::kModulo: return "%";
    case Operator::kPower: return "**";
    case Operator::kPlus: return "+";
  }
  return "?";
}

[[noreturn]] void overflow(Operator operation) {
  fail(fmt::format("{}: expected an integer of at most 127 bits as result", symbol_of(operation)));
}

[[noreturn]] void wrong_operands(Operator operation, const Value& a, const Value& b) {
  if (a.is_undefined()) fail(a.undefined_reason());
  if (b.is_undefined()) fail(b.undefined_reason());
  fail(fmt::format("{}: expected operands that go together, got {} and {}", symbol_of(operation),
                   type_name(a), type_name(b)));
}

Integer floor_divide(Integer a, Integer b) {
  const Integer quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

/// Python's float %: the result has the sign of the divisor.
double modulo(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) remainder += b;
  } else {
    remainder = std::copysign(0.0, b);
  }
  return remainder;
}

Value integer_power(Integer base, Integer exponent) {
  if (exponent < 0) {
    if (base == 0) fail("**: expected a base other than zero for a negative exponent");
    return Value::number(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Integer result = 1;
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  for (; exponent > 0; --exponent) {  // at most 127 rounds: the magnitude doubles each time
    if (__builtin_mul_overflow(result, base, &result)) overflow(Operator::kPower);
  }
  return Value::integer(result);
}

Value integer_arithmetic(Operator operation, Integer a, Integer b) {
  constexpr Integer kMin = static_cast<Integer>(1) << 126;
  Integer result = 0;
  switch (operation) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) overflow(operation);
      return Value::integer(result);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow(operation);
      return Value::integer(result);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow(operation);
      return Value::integer(result);
    case Operator::kPower: return integer_power(a, b);
    default: break;
  }
  if (b == 0) fail(fmt::format("{}: expected a divisor other than zero", symbol_of(operation)));
  if (operation == Operator::kDivide) {
    return Value::number(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  }
  if (b == -1) {  // the one quotient that may not fit
    if (a < -kMin) overflow(operation);
    return Value::integer(operation == Operator::kModulo ? 0 : -a);
  }
  const Integer quotient = floor_divide(a, b);
  return Value::integer(operation == Operator::kModulo ? a - quotient * b : quotient);
}

Value float_arithmetic(Operator operation, double a, double b) {
  switch (operation) {
    case Operator::kAdd: return Value::number(a + b);
    case Operator::kSubtract: return Value::number(a - b);
    case Operator::kMultiply: return Value::number(a * b);
    case Operator::kPower: {
      if (a == 0 && b < 0) fail("**: expected a base other than zero for a negative exponent");
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
        fail("**: expected a real number as result");
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
        fail("**: expected a finite number as result");
      return Value::number(result);
    }
    default: break;
  }
  if (b == 0) fail(fmt::format("{}: expected a divisor other than zero", symbol_of(operation)));
  if (operation == Operator::kDivide) return Value::number(a / b);
  const double remainder = modulo(a, b);
  if (operation == Operator::kModulo) return Value::number(remainder);
  return Value::number(std::round((a - remainder) / b));
}

Value repeat(Heap& heap, const Value& value, Integer count) {
  if (value.is_string()) {
    const std::string& unit = value.as_string();
    if (count <= 0 || unit.empty()) return heap.string({}, value.is_markup());
    const Integer bytes =
        count > (Integer{1} << 62) ? (Integer{1} << 62) : count * static_cast<Integer>(unit.size());
    heap.check_string(
        static_cast<std::size_t>(std::min<Integer>(bytes, std::numeric_limits<std::int64_t>::max())));
    std::string out;
    out.reserve(static_cast<std::size_t>(bytes));
    for (Integer i = 0; i < count; ++i) out += unit;
    return heap.string(std::move(out), value.is_markup());
  }
  const std::vector<Value>& unit = value.as_sequence().items;
  std::vector<Value> items;
  for (Integer i = 0; i < count && !unit.empty(); ++i) {
    heap.charge_steps(1 + unit.size());
    if (items.size() + unit.size() > heap.limits().max_value_bytes / sizeof(Value))
      heap.charge_bytes(SIZE_MAX);
    items.insert(items.end(), unit.begin(), unit.end());
  }
  return heap.sequence(value.kind(), std::move(items));
}

bool is_repeatable(const Value& value) {
  return value.is_string() || value.is(Kind::kList) || value.is(Kind::kTuple);
}

Value add(Heap& heap, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    const bool is_markup = a.is_markup() || b.is_markup();
    // Plain text that joins markup is escaped.
    const auto part = [&](const Value& v) {
      return is_markup && !v.is_markup() ? escape_html(v.as_string()) : v.as_string();
    };
    heap.check_string(a.as_string().size() + b.as_string().size());
    return heap.string(part(a) + part(b), is_markup);
  }
  if (a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple))) {
    const auto& more = b.as_sequence().items;
    heap.charge_steps((a.as_sequence().items.size() + more.size()) / 8);
    std::vector<Value> items = a.as_sequence().items;
    items.insert(items.end(), more.begin(), more.end());
    return heap.sequence(a.kind(), std::move(items));
  }
  wrong_operands(Operator::kAdd, a, b);
}

/// Elements of a slice as indices: start, and count of steps.
struct SliceRange {
  std::int64_t start;
  std::int64_t count;
};

SliceRange slice_range(std::int64_t length, const Value& start, const Value& stop, std::int64_t step) {
  const auto bound = [&](const Value& value, std::int64_t fallback) {
    if (value.is_none()) return fallback;
    std::int64_t index = static_cast<std::int64_t>(
        std::clamp<Integer>(value.as_integer(), -(Integer{1} << 62), Integer{1} << 62));
    if (index < 0) index += length;
    return std::clamp<std::int64_t>(index, step > 0 ? 0 : -1, step > 0 ? length : length - 1);
  };
  const std::int64_t from = bound(start, step > 0 ? 0 : length - 1);
  const std::int64_t to = bound(stop, step > 0 ? length : -1);
  if (step > 0) return {from, to > from ? (to - from - 1) / step + 1 : 0};
  return {from, from > to ? (from - to - 1) / -step + 1 : 0};
}

Value slice_string(Heap& heap, const Value& base, const Value& start, const Value& stop, std::int64_t step) {
  const std::string& text = base.as_string();
  const bool is_plain = is_ascii(text);
  heap.charge_characters(is_plain ? text.size() / 16 : text.size());
  std::vector<std::size_t> offsets;
  if (!is_plain) offsets = code_point_offsets(text);
  const auto offset = [&](std::int64_t i) {
    return offsets.empty() ? static_cast<std::size_t>(i) : offsets[static_cast<std::size_t>(i)];
  };
  const auto length = static_cast<std::int64_t>(offsets.empty() ? text.size() : offsets.size() - 1);
  const SliceRange range = slice_range(length, start, stop, step);
  if (range.count == 0) return heap.string({}, base.is_markup());
  if (step == 1) {
    const std::size_t begin = offset(range.start);
    return heap.string(text.substr(begin, offset(range.start + range.count) - begin), base.is_markup());
  }
  std::string out;
  for (std::int64_t i = 0; i < range.count; ++i) {
    const std::size_t begin = offset(range.start + i * step);
    out.append(text, begin, offset(range.start + i * step + 1) - begin);
  }
  return heap.string(std::move(out), base.is_markup());
}

}  // namespace

Value binary(Heap& heap, Operator operation, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral())
    return integer_arithmetic(operation, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return float_arithmetic(operation, a.as_double(), b.as_double());
  if (operation == Operator::kAdd) return add(heap, a, b);
  if (operation == Operator::kModulo && a.is_string()) {
    return format_percent(heap, a, b);
  }
  if (operation == Operator::kMultiply) {
    if (is_repeatable(a) && b.is_integral()) return repeat(heap, a, b.as_integer());
    if (a.is_integral() && is_repeatable(b)) return repeat(heap, b, a.as_integer());
  }
  wrong_operands(operation, a, b);
}

Value unary(Operator operation, const Value& a) {
  if (a.is_undefined()) fail(a.undefined_reason());
  if (!a.is_number()) {
    fail(fmt::format("{}: expected a number, got a value of type {}", symbol_of(operation), type_name(a)));
  }
  if (operation == Operator::kPlus) return a.is(Kind::kFloat) ? a : Value::integer(a.as_integer());
  if (a.is(Kind::kFloat)) return Value::number(-a.as_double());
  return integer_arithmetic(Operator::kSubtract, 0, a.as_integer());
}

Value slice(Heap& heap, const Value& base, const Value& start, const Value& stop, const Value& step) {
  if (base.is_undefined()) fail(base.undefined_reason());
  const bool has_slices =
      base.is_string() || base.is(Kind::kList) || base.is(Kind::kTuple) || base.is(Kind::kRange);
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->is_integral()) {
      if (bound->is_undefined()) fail(bound->undefined_reason());
      fail(fmt::format("expected integers or none as bounds of a slice, got a value of type {}",
                       type_name(*bound)));
    }
  }
  if (!has_slices)
    fail(fmt::format("expected text or a list to slice, got a value of type {}", type_name(base)));
  if (!step.is_none() && step.as_integer() == 0) fail("expected a slice step other than zero");
  constexpr Integer kFar = Integer{1} << 40;  // beyond any length: one element at most
  const auto stride =
      step.is_none() ? 1 : static_cast<std::int64_t>(std::clamp(step.as_integer(), -kFar, kFar));
  if (base.is_string()) return slice_string(heap, base, start, stop, stride);
  const std::vector<Value>& items = base.as_sequence().items;
  const SliceRange range = slice_range(static_cast<std::int64_t>(items.size()), start, stop, stride);
  std::vector<Value> out;
  for (std::int64_t i = 0; i < range.count; ++i)
    out.push_back(items[static_cast<std::size_t>(range.start + i * stride)]);
  return heap.sequence(base.is(Kind::kTuple) ? Kind::kTuple : Kind::kList, std::move(out));
}

double round_decimal(double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 400) return value;
  if (digits < -400) return std::copysign(0.0, value);
  if (digits >= 0) {
    // Decimal digits of the exact value, correctly rounded, are what Python rounds to.
    return parse_float(fmt::format("{:.{}f}", value, digits)).value_or(value);
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

Integer truncate_to_integer(double value) {
  if (!(std::fabs(value) < 1.7e38)) {
    fail(fmt::format("expected a number that an integer of 127 bits can hold, got {}", float_text(value)));
  }
  return static_cast<Integer>(value);
}

std::optional<Integer> parse_integer(std::string_view text, int base) {
  text = strip(text, Side::kBoth);
  bool is_negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    is_negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto has_prefix = [&](char lower) {
    return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == lower;
  };
  const int prefixed = has_prefix('x') ? 16 : has_prefix('o') ? 8 : has_prefix('b') ? 2 : 0;
  if (base == 0) base = prefixed == 0 ? 10 : prefixed;
  if (prefixed == base) {
    text.remove_prefix(2);
    if (text[0] == '_') text.remove_prefix(1);
  }
  if (text.empty()) return std::nullopt;
  Integer value = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i != 0 && i + 1 < text.size() && text[i - 1] != '_') continue;
    int digit = 99;
    if (text[i] >= '0' && text[i] <= '9') digit = text[i] - '0';
    const char letter = static_cast<char>(text[i] | 0x20);
    if (letter >= 'a' && letter <= 'z') digit = letter - 'a' + 10;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<Integer>(base), &value) ||
        __builtin_add_overflow(value, static_cast<Integer>(digit), &value)) {
      fail("int: expected an integer of at most 127 bits");
    }
  }
  return is_negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text, Side::kBoth);
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto is_digit = [&](std::size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (text[i] == '_' && i != 0 && is_digit(i - 1) && is_digit(i + 1)) continue;
    digits += text[i];
  }
  std::string_view number = digits;
  if (!number.empty() && number[0] == '+') {
    number.remove_prefix(1);
    if (!number.empty() && number[0] == '-') return std::nullopt;
  }
  double value = 0;
  const auto result = std::from_chars(number.data(), number.data() + number.size(), value);
  if (result.ptr != number.data() + number.size() || number.empty()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    // Python gives infinity or zero; the sign of the exponent tells which.
    const std::size_t e = number.find_first_of("eE");
    const bool is_tiny = e != std::string_view::npos ? e + 1 < number.size() && number[e + 1] == '-'
                                                     : number.find_first_of("123456789.") == number.find('.');
    value = is_tiny ? 0.0 : std::numeric_limits<double>::infinity();
    return number[0] == '-' ? -value : value;
  }
  if (result.ec != std::errc{}) return std::nullopt;
  return value;
}

}  // namespace mererun::jinja
