// The two ways Python formats text: "%s" % value and "{}".format(value).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_text.h"

namespace mererun::jinja {
namespace {

constexpr int kMaxPrecision = 400;

/// What both notations can ask for.
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '='; none: by type
  char sign = '-';    // '-', '+' or ' '
  bool alternate = false;
  bool zero_pad = false;
  bool thousands = false;
  std::int64_t width = 0;
  std::optional<std::int64_t> precision;
  char type = '\0';
};

std::int64_t read_digits(std::string_view text, std::size_t& i) {
  std::int64_t value = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    value = std::min<std::int64_t>(value * 10 + (text[i] - '0'), std::int64_t{1} << 40);
  }
  return value;
}

void pad(TextBuilder& out, std::string_view body, const FormatSpec& spec, char default_align) {
  const char align = spec.align == '\0' ? default_align : spec.align;
  const auto length = static_cast<std::int64_t>(count_code_points(body));
  const std::int64_t missing = std::max<std::int64_t>(0, spec.width - length);
  out.heap().check_string(static_cast<std::size_t>(missing));
  out.heap().charge_steps(static_cast<std::uint64_t>(missing) / 8);
  const auto fill = [&](std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) out.add(spec.fill);
  };
  const std::int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  if (align == '=') {
    const std::size_t sign = !body.empty() && (body[0] == '-' || body[0] == '+' || body[0] == ' ') ? 1 : 0;
    out.add(body.substr(0, sign));
    fill(missing);
    out.add(body.substr(sign));
    return;
  }
  fill(before);
  out.add(body);
  fill(missing - before);
}

std::string with_sign(std::string digits, bool is_negative, char sign) {
  if (is_negative || sign != '-') digits.insert(digits.begin(), is_negative ? '-' : sign);
  return digits;
}

void group_thousands(std::string& digits) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, 1, ',');
}

std::string format_integer(Integer value, const FormatSpec& spec) {
  const bool is_negative = value < 0;
  auto magnitude = static_cast<unsigned __int128>(value);
  if (is_negative) magnitude = 0 - magnitude;
  std::string digits;
  switch (spec.type) {
    case 'x': digits = fmt::format("{}{:x}", spec.alternate ? "0x" : "", magnitude); break;
    case 'X': digits = fmt::format("{}{:X}", spec.alternate ? "0X" : "", magnitude); break;
    case 'o': digits = fmt::format("{}{:o}", spec.alternate ? "0o" : "", magnitude); break;
    case 'b': digits = fmt::format("{}{:b}", spec.alternate ? "0b" : "", magnitude); break;
    default: digits = fmt::format("{}", magnitude); break;
  }
  if (spec.thousands) group_thousands(digits);
  return with_sign(std::move(digits), is_negative, spec.sign);
}

std::string format_float(double value, const FormatSpec& spec) {
  const bool is_negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  const int precision = static_cast<int>(std::min<std::int64_t>(spec.precision.value_or(6), kMaxPrecision));
  std::string digits;
  switch (spec.type) {
    case 'e': digits = fmt::format("{:.{}e}", magnitude, precision); break;
    case 'E': digits = fmt::format("{:.{}E}", magnitude, precision); break;
    case 'g': digits = fmt::format("{:.{}g}", magnitude, std::max(1, precision)); break;
    case 'G': digits = fmt::format("{:.{}G}", magnitude, std::max(1, precision)); break;
    case '%': digits = fmt::format("{:.{}f}%", magnitude * 100, precision); break;
    case '\0':
      digits =
          spec.precision ? fmt::format("{:.{}g}", magnitude, std::max(1, precision)) : float_text(magnitude);
      break;
    default: digits = fmt::format("{:.{}f}", magnitude, precision); break;
  }
  if (spec.thousands) group_thousands(digits);
  return with_sign(std::move(digits), is_negative, spec.sign);
}

/// Reads one "%..." conversion after the '%' and after "(name)".
FormatSpec read_percent_spec(std::string_view format, std::size_t& i) {
  FormatSpec spec;
  for (; i < format.size(); ++i) {
    if (format[i] == '-') {
      spec.align = '<';
    } else if (format[i] == '+') {
      spec.sign = '+';
    } else if (format[i] == ' ') {
      spec.sign = spec.sign == '+' ? '+' : ' ';
    } else if (format[i] == '#') {
      spec.alternate = true;
    } else if (format[i] == '0') {
      spec.zero_pad = true;
    } else {
      break;
    }
  }
  spec.width = read_digits(format, i);
  if (i < format.size() && format[i] == '.') spec.precision = read_digits(format, ++i);
  if (i >= format.size()) fail("%: expected a conversion letter, got the end of the format");
  spec.type = format[i++];
  return spec;
}

void append_percent(TextBuilder& out, const FormatSpec& given, const Value& value, bool is_markup) {
  FormatSpec spec = given;
  std::string body;
  bool is_number = true;
  switch (spec.type) {
    case 's':
    case 'r': {
      TextBuilder text(out.heap());
      if (spec.type == 's') {
        append_text(text, value);
      } else {
        append_repr(text, value);
      }
      body = text.take();
      if (is_markup && !value.is_markup()) body = escape_html(body);
      if (spec.precision) body.resize(byte_offset(body, static_cast<std::size_t>(*spec.precision)));
      is_number = false;
      break;
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      if (!value.is_number() ||
          (value.is(Kind::kFloat) && spec.type != 'd' && spec.type != 'i' && spec.type != 'u')) {
        fail(fmt::format("%{}: expected a number, got a value of type {}", spec.type, type_name(value)));
      }
      body = format_integer(
          value.is(Kind::kFloat) ? truncate_to_integer(value.as_double()) : value.as_integer(), spec);
      break;
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
      if (!value.is_number())
        fail(fmt::format("%{}: expected a number, got a value of type {}", spec.type, type_name(value)));
      body = format_float(value.as_double(), spec);
      break;
    case 'c':
      if (value.is_string() && count_code_points(value.as_string()) == 1) {
        body = value.as_string();
      } else if (value.is_integral() && value.as_integer() >= 0 && value.as_integer() < 0xD800) {
        append_code_point(body, static_cast<std::int32_t>(value.as_integer()));
      } else {
        fail("%c: expected one character");
      }
      is_number = false;
      break;
    default: fail(fmt::format("%: expected a known conversion, got '{}'", spec.type));
  }
  if (spec.zero_pad && is_number && spec.align == '\0') {
    spec.fill.assign(1, '0');
    spec.align = '=';
  }
  pad(out, body, spec, '>');
}

FormatSpec read_brace_spec(std::string_view text) {
  FormatSpec spec;
  std::size_t i = 0;
  const auto is_align = [&](std::size_t at) {
    return at < text.size() && (text[at] == '<' || text[at] == '>' || text[at] == '^' || text[at] == '=');
  };
  if (!text.empty()) {
    std::int32_t cp = 0;
    const std::size_t length = code_point_length(text, 0, &cp);
    if (is_align(length)) {
      spec.fill = std::string(text.substr(0, length));
      spec.align = text[length];
      i = length + 1;
    } else if (is_align(0)) {
      spec.align = text[i++];
    }
  }
  const auto skip = [&](char c) { return i < text.size() && text[i] == c && ++i != 0; };
  if (i < text.size() && (text[i] == '+' || text[i] == '-' || text[i] == ' ')) spec.sign = text[i++];
  spec.alternate = skip('#');
  if (skip('0') && spec.align == '\0') {
    spec.fill.assign(1, '0');
    spec.align = '=';
  }
  spec.width = read_digits(text, i);
  spec.thousands = skip(',');
  if (skip('.')) spec.precision = read_digits(text, i);
  if (i < text.size()) spec.type = text[i++];
  if (i != text.size()) fail(fmt::format("format: expected a valid format, got '{}'", text));
  return spec;
}

void append_formatted(TextBuilder& out, std::string_view spec_text, const Value& value) {
  const FormatSpec spec = read_brace_spec(spec_text);
  const bool wants_float =
      spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  const bool wants_integer =
      spec.type != '\0' && std::string_view("dxXob").find(spec.type) != std::string_view::npos;
  if (value.is_number() && (wants_float || (value.is(Kind::kFloat) && spec.type == '\0'))) {
    pad(out, format_float(value.as_double(), spec), spec, '>');
  } else if (value.is_integral() && (wants_integer || (value.is(Kind::kInt) && spec.type == '\0'))) {
    pad(out, format_integer(value.as_integer(), spec), spec, '>');
  } else if (spec.type == '\0' || spec.type == 's') {
    TextBuilder text(out.heap());
    append_text(text, value);
    std::string body = text.take();
    if (spec.precision) body.resize(byte_offset(body, static_cast<std::size_t>(*spec.precision)));
    pad(out, body, spec, '<');
  } else {
    fail(fmt::format("format: expected a value that fits '{}', got one of type {}", spec_text,
                     type_name(value)));
  }
}

/// Finds what a field such as "0", "name" or "item.key[2]" names.
Value field_value(Interpreter& interpreter, std::string_view field, const Arguments& arguments,
                  std::size_t& automatic) {
  const std::size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string_view first = field.substr(0, end);
  Value value;
  const bool is_index = first.find_first_not_of("0123456789") == std::string_view::npos;
  if (is_index) {
    std::size_t at = 0;
    const std::size_t index = first.empty() ? automatic++ : static_cast<std::size_t>(read_digits(first, at));
    if (index >= arguments.positional.size())
      fail(fmt::format("format: expected an argument {}, got none", index));
    value = arguments.positional[index];
  } else {
    const auto it = std::find_if(arguments.keyword.begin(), arguments.keyword.end(),
                                 [&](const auto& argument) { return argument.first == first; });
    if (it == arguments.keyword.end())
      fail(fmt::format("format: expected an argument '{}', got none", first));
    value = it->second;
  }
  for (std::size_t i = end; i < field.size();) {
    const bool is_item = field[i] == '[';
    const std::size_t start = i + 1;
    const std::size_t stop =
        is_item ? field.find(']', start) : std::min(field.find_first_of(".[", start), field.size());
    if (stop == std::string_view::npos) fail("format: expected ']' in a field");
    const std::string key(field.substr(start, stop - start));
    const bool is_number =
        is_item && !key.empty() && key.find_first_not_of("0123456789") == std::string::npos;
    std::size_t at = 0;
    const Value name = is_number ? Value::integer(read_digits(key, at)) : interpreter.heap().string(key);
    value = is_item ? interpreter.item(value, name) : interpreter.attribute(value, name);
    i = is_item ? stop + 1 : stop;
  }
  return value;
}

}  // namespace

Value format_percent(Heap& heap, const Value& format, const Value& values) {
  const std::string& text = format.as_string();
  TextBuilder out(heap);
  std::size_t used = 0;
  const auto next_value = [&]() -> Value {
    if (values.is(Kind::kTuple)) {
      const auto& items = values.as_sequence().items;
      if (used >= items.size()) fail("%: expected more values for the format");
      return items[used++];
    }
    if (used++ != 0) fail("%: expected more values for the format");
    return values;
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t percent = std::min(text.find('%', i), text.size());
    out.add(std::string_view(text).substr(i, percent - i));
    i = percent + 1;
    if (percent == text.size()) break;
    if (i < text.size() && text[i] == '%') {
      out.add("%");
      ++i;
      continue;
    }
    std::optional<Value> named;
    if (i < text.size() && text[i] == '(') {
      const std::size_t close = text.find(')', i);
      if (close == std::string::npos || !values.is(Kind::kDict))
        fail("%: expected a dict for a named conversion");
      const Value* value = values.as_dict().find(std::string_view(text).substr(i + 1, close - i - 1));
      if (value == nullptr) fail(fmt::format("%: expected a key '{}'", text.substr(i + 1, close - i - 1)));
      named = *value;
      i = close + 1;
    }
    heap.charge_steps(1);
    const FormatSpec spec = read_percent_spec(text, i);
    append_percent(out, spec, named ? *named : next_value(), format.is_markup());
  }
  if (values.is(Kind::kTuple) ? used < values.as_sequence().items.size()
                              : used == 0 && !values.is(Kind::kDict) && !values.is(Kind::kList)) {
    fail("%: expected fewer values for the format");
  }
  return heap.string(out.take(), format.is_markup());
}

Value format_braces(Interpreter& interpreter, const Value& format, const Arguments& arguments) {
  const std::string& text = format.as_string();
  TextBuilder out(interpreter.heap());
  std::size_t automatic = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t brace = std::min(text.find_first_of("{}", i), text.size());
    out.add(std::string_view(text).substr(i, brace - i));
    if (brace == text.size()) break;
    i = brace + 1;
    if (i < text.size() && text[i] == text[brace]) {
      out.add(std::string_view(text).substr(brace, 1));
      ++i;
      continue;
    }
    interpreter.heap().charge_steps(1);
    const std::size_t close = text.find('}', i);
    if (text[brace] == '}' || close == std::string::npos) fail("format: expected balanced braces");
    std::string_view field = std::string_view(text).substr(i, close - i);
    i = close + 1;
    const std::size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec = colon < field.size() ? field.substr(colon + 1) : std::string_view();
    field = field.substr(0, colon);
    const std::size_t bang = std::min(field.find('!'), field.size());
    const std::string_view conversion = field.substr(bang);
    Value value = field_value(interpreter, field.substr(0, bang), arguments, automatic);
    if (conversion == "!r" || conversion == "!s") {
      TextBuilder converted(interpreter.heap());
      if (conversion == "!r") {
        append_repr(converted, value);
      } else {
        append_text(converted, value);
      }
      value = interpreter.heap().string(converted.take());
    } else if (!conversion.empty()) {
      fail(fmt::format("format: expected !r or !s, got '{}'", conversion));
    }
    append_formatted(out, spec, value);
  }
  return interpreter.heap().string(out.take(), format.is_markup());
}

}  // namespace mererun::jinja
