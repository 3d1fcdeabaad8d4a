#pragma once

#include <optional>
#include <string_view>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_value.h"

namespace mererun::jinja {

/// Python's arithmetic: + - * / // % ** on numbers, + and * on text and lists, % formats text.
/// Fails for other operands, division by zero and integers beyond 127 bits.
Value binary(Heap& heap, Operator operation, const Value& a, const Value& b);
Value unary(Operator operation, const Value& a);

/// base[start:stop:step] of text, a list, tuple or range; each bound an integer or none. Fails for anything
/// else and for step 0.
Value slice(Heap& heap, const Value& base, const Value& start, const Value& stop, const Value& step);

/// format % values. Source: Python library reference, "printf-style String Formatting".
Value format_percent(Heap& heap, const Value& format, const Value& values);
/// format.format(...). Source: Python library reference, "Format String Syntax".
Value format_braces(Interpreter& interpreter, const Value& format, const Arguments& arguments);

/// Python's round to even at a decimal place.
double round_decimal(double value, std::int64_t digits);
/// A float cut to an integer; fails for infinities, NaN and beyond 127 bits.
Integer truncate_to_integer(double value);
/// int(text, base) of Python; nothing if the text is no number.
std::optional<Integer> parse_integer(std::string_view text, int base);
/// float(text) of Python.
std::optional<double> parse_float(std::string_view text);

}  // namespace mererun::jinja
