// Filters on single values: text, numbers, conversions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_json.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_text.h"

namespace mererun::jinja {
namespace {

/// The input as text; keeps markup.
Value soft_text(Interpreter& in, const Value& input) {
  return input.is_string() ? input : in.heap().string(to_text(in.heap(), input));
}

Value call_string_method(Interpreter& in, const Value& input, std::string_view name,
                         const Arguments& arguments) {
  return call_method(in, find_string_method(name), soft_text(in, input), arguments);
}

Value filter_upper(Interpreter& in, const Value& input, const Arguments& arguments) {
  return call_string_method(in, input, "upper", arguments);
}
Value filter_lower(Interpreter& in, const Value& input, const Arguments& arguments) {
  return call_string_method(in, input, "lower", arguments);
}
Value filter_capitalize(Interpreter& in, const Value& input, const Arguments& arguments) {
  return call_string_method(in, input, "capitalize", arguments);
}
Value filter_trim(Interpreter& in, const Value& input, const Arguments& arguments) {
  return call_string_method(in, input, "strip", arguments);
}

Value filter_title(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("title", arguments, {});
  const std::string text = to_text(in.heap(), input);
  in.heap().charge_characters(text.size());
  return in.heap().string(title_words(text));
}

Value filter_center(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("center", arguments, {"width"});
  Arguments width;
  width.positional.push_back(Value::integer(bound.integer(0, 80)));
  return call_string_method(in, input, "center", width);
}

Value filter_replace(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"}, 2);
  Arguments plain;
  plain.positional.push_back(in.heap().string(to_text(in.heap(), bound.value(0))));
  plain.positional.push_back(in.heap().string(to_text(in.heap(), bound.value(1))));
  if (bound.has(2)) plain.positional.push_back(bound.value(2));
  const Value text = in.heap().string(to_text(in.heap(), input));
  return call_method(in, find_string_method("replace"), text, plain);
}

Value filter_string(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("string", arguments, {});
  return soft_text(in, input);
}

Value filter_safe(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("safe", arguments, {});
  return in.heap().string(to_text(in.heap(), input), true);
}

Value filter_force_escape(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("forceescape", arguments, {});
  const std::string text = to_text(in.heap(), input);
  in.heap().charge_characters(text.size());
  return in.heap().string(escape_html(text), true);
}

Value filter_escape(Interpreter& in, const Value& input, const Arguments& arguments) {
  return input.is_markup() ? input : filter_force_escape(in, input, arguments);
}

Value filter_indent(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("indent", arguments, {"width", "first", "blank"});
  if (input.is_undefined()) fail(input.undefined_reason());
  if (!input.is_string())
    fail(fmt::format("indent: expected text, got a value of type {}", type_name(input)));
  std::string indentation;
  if (bound[0] != nullptr && bound.value(0).is_string()) {
    indentation = bound.text(0);
  } else {
    const std::int64_t width = std::max<std::int64_t>(0, bound.integer(0, 4));
    in.heap().check_string(static_cast<std::size_t>(width));
    indentation.assign(static_cast<std::size_t>(width), ' ');
  }
  const bool blank = bound.truth(2, false);
  TextBuilder out(in.heap());
  if (bound.truth(1, false)) out.add(indentation);
  const std::string text = input.as_string() + "\n";  // so that a text ending in a newline keeps it
  bool first = true;
  in.heap().charge_characters(text.size());
  for (const std::string_view line : split_lines(text, false)) {
    in.heap().charge_steps(1);
    if (!first) out.add("\n");
    if (!first && (blank || !line.empty())) out.add(indentation);
    first = false;
    out.add(line);
  }
  return in.heap().string(out.take(), input.is_markup());
}

Value filter_truncate(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  if (!input.is_string())
    fail(fmt::format("truncate: expected text, got a value of type {}", type_name(input)));
  const std::string& text = input.as_string();
  in.heap().charge_characters(text.size());
  const std::int64_t length = bound.integer(0, 255);
  const std::string_view end = bound.text(2, "...");
  const auto end_length = static_cast<std::int64_t>(count_code_points(end));
  const std::int64_t leeway = bound.has(3) ? bound.integer(3, 5) : 5;
  if (length < end_length || leeway < 0)
    fail("truncate: expected a length that holds the end mark, and a leeway of 0 or more");
  if (static_cast<std::int64_t>(count_code_points(text)) - leeway <= length) return input;
  std::string_view kept =
      std::string_view(text).substr(0, byte_offset(text, static_cast<std::size_t>(length - end_length)));
  if (!bound.truth(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return in.heap().string(std::string(kept) + std::string(end), input.is_markup());
}

Value filter_wordcount(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("wordcount", arguments, {});
  const std::string text = to_text(in.heap(), input);
  in.heap().charge_characters(text.size());
  Integer words = 0;
  bool in_word = false;
  for (std::size_t i = 0; i < text.size();) {
    std::int32_t cp = 0;
    i += code_point_length(text, i, &cp);
    const bool is_word = is_word_character(cp);
    if (is_word && !in_word) ++words;
    in_word = is_word;
  }
  return Value::integer(words);
}

Value filter_int(Interpreter&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("int", arguments, {"default", "base"});
  const Value fallback = bound[0] != nullptr ? bound.value(0) : Value::integer(0);
  if (input.is_undefined()) fail(input.undefined_reason());
  if (input.is_integral()) return Value::integer(input.as_integer());
  if (input.is(Kind::kFloat)) {
    return std::isnan(input.as_double()) ? fallback : Value::integer(truncate_to_integer(input.as_double()));
  }
  if (!input.is_string()) return fallback;
  const std::int64_t base = bound.integer(1, 10);
  if (base != 0 && (base < 2 || base > 36))
    fail(fmt::format("int: expected a base from 2 to 36, got {}", base));
  if (const auto value = parse_integer(input.as_string(), static_cast<int>(base)))
    return Value::integer(*value);
  const auto number = parse_float(input.as_string());
  return number && std::isfinite(*number) ? Value::integer(truncate_to_integer(*number)) : fallback;
}

Value filter_float(Interpreter&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("float", arguments, {"default"});
  if (input.is_undefined()) fail(input.undefined_reason());
  if (input.is_number()) return Value::number(input.as_double());
  if (input.is_string()) {
    if (const auto number = parse_float(input.as_string())) return Value::number(*number);
  }
  return bound[0] != nullptr ? bound.value(0) : Value::number(0);
}

Value filter_abs(Interpreter&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("abs", arguments, {});
  if (input.is(Kind::kFloat)) return Value::number(std::fabs(input.as_double()));
  const Value value = unary(Operator::kPlus, input);
  return value.as_integer() < 0 ? unary(Operator::kNegate, value) : value;
}

Value round_integer(Integer value, std::int64_t digits) {
  if (digits >= 0) return Value::integer(value);
  if (digits < -38) return Value::integer(0);
  Integer scale = 1;
  for (std::int64_t i = 0; i < -digits; ++i) scale *= 10;
  Integer quotient = value / scale;
  const Integer rest = value % scale;
  const Integer magnitude = rest < 0 ? -rest : rest;
  if (magnitude * 2 > scale || (magnitude * 2 == scale && quotient % 2 != 0)) quotient += value < 0 ? -1 : 1;
  if (__builtin_mul_overflow(quotient, scale, &quotient))
    fail("round: expected an integer of at most 127 bits");
  return Value::integer(quotient);
}

Value filter_round(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("round", arguments, {"precision", "method"});
  in.heap().charge_steps(16);  // rounding prints the exact decimal
  const std::int64_t precision = bound.integer(0, 0);
  const std::string_view method = bound.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") {
    fail(fmt::format("round: expected common, ceil or floor, got '{}'", method));
  }
  const Value number = unary(Operator::kPlus, input);
  if (method == "common") {
    if (number.is_integral()) return round_integer(number.as_integer(), precision);
    return Value::number(round_decimal(number.as_double(), precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(std::clamp<std::int64_t>(precision, -300, 300)));
  const double scaled = number.as_double() * scale;
  return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value filter_default(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("default", arguments, {"default_value", "boolean"});
  const bool is_missing = input.is_undefined() || (bound.truth(1, false) && !truthy(input));
  if (!is_missing) return input;
  return bound[0] != nullptr ? bound.value(0) : in.heap().string({});
}

Value filter_format(Interpreter& in, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keyword.empty()) {
    fail("format: expected positional or keyword arguments, got both");
  }
  if (arguments.keyword.empty()) {
    return format_percent(in.heap(), soft_text(in, input), in.heap().tuple(arguments.positional));
  }
  const Value values = in.heap().dict();
  for (const auto& [name, value] : arguments.keyword)
    values.as_dict().set(in.heap(), in.heap().string(name), value);
  return format_percent(in.heap(), soft_text(in, input), values);
}

Value filter_tojson(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.truth(0, false);
  style.sort_keys = bound.truth(3, false);
  if (bound.has(1)) {
    if (bound.value(1).is_string()) {
      style.indent = bound.text(1);
    } else {
      const std::int64_t width = std::max<std::int64_t>(0, bound.integer(1, 0));
      in.heap().check_string(static_cast<std::size_t>(width));
      style.indent.emplace(static_cast<std::size_t>(width), ' ');
    }
    style.item_separator = ",";
  }
  if (bound.has(2)) {
    const std::vector<Value> separators = in.elements(bound.value(2));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      fail("tojson: expected two texts as separators");
    }
    style.item_separator = separators[0].as_string();
    style.key_separator = separators[1].as_string();
  }
  TextBuilder out(in.heap());
  append_json(out, input, style);
  return in.heap().string(out.take());
}

Value filter_attr(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("attr", arguments, {"name"}, 1);
  bound.text(0);
  if (input.is(Kind::kDict)) {  // methods only: an entry of a dict is no attribute
    if (find_method(Kind::kDict, bound.text(0)) == nullptr) {
      return Value::undefined_attribute(bound.value(0).as_text(), Kind::kDict);
    }
  }
  return in.attribute(input, bound.value(0));
}

}  // namespace

Filter find_text_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"abs", filter_abs},
      {"attr", filter_attr},
      {"capitalize", filter_capitalize},
      {"center", filter_center},
      {"d", filter_default},
      {"default", filter_default},
      {"e", filter_escape},
      {"escape", filter_escape},
      {"float", filter_float},
      {"forceescape", filter_force_escape},
      {"format", filter_format},
      {"indent", filter_indent},
      {"int", filter_int},
      {"lower", filter_lower},
      {"replace", filter_replace},
      {"round", filter_round},
      {"safe", filter_safe},
      {"string", filter_string},
      {"title", filter_title},
      {"tojson", filter_tojson},
      {"trim", filter_trim},
      {"truncate", filter_truncate},
      {"upper", filter_upper},
      {"wordcount", filter_wordcount},
  };
  const auto it = kFilters.find(name);
  return it == kFilters.end() ? nullptr : it->second;
}

Filter find_filter(std::string_view name) {
  if (const Filter filter = find_text_filter(name)) return filter;
  return find_sequence_filter(name);
}

}  // namespace mererun::jinja
