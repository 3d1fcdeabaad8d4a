// Python's methods of str.
#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_text.h"

namespace mererun::jinja {
namespace {

std::string_view bytes_of(const Value& self) { return self.as_string(); }

/// Searching from the right compares naively; this keeps adversarial text within the step budget.
void charge_search(Interpreter& in, std::size_t text, std::size_t needle) {
  in.heap().charge_steps(1 + text / 32 * (1 + needle / 32));
}

template <std::string (*kConvert)(std::string_view)>
Value convert(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("method", arguments, {});
  in.heap().charge_characters(self.as_string().size());
  return in.heap().string(kConvert(bytes_of(self)));
}

template <bool (*kPredicate)(std::string_view)>
Value ask(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("method", arguments, {});
  in.heap().charge_characters(self.as_string().size());
  return Value::boolean(kPredicate(bytes_of(self)));
}

template <CharacterClass kClass>
Value ask_class(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("method", arguments, {});
  in.heap().charge_characters(self.as_string().size());
  return Value::boolean(all_in(bytes_of(self), kClass));
}

bool is_ascii_text(std::string_view text) { return is_ascii(text); }

template <Side kSide>
Value strip_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("strip", arguments, {"chars"});
  std::optional<std::string_view> characters;
  if (bound.has(0)) {
    characters = bound.text(0);
    charge_search(in, self.as_string().size(), characters->size());
  }
  const std::string_view rest = strip(bytes_of(self), kSide, characters);
  in.heap().charge_characters(self.as_string().size() - rest.size());
  return in.heap().string(std::string(rest));
}

Value list_of(Interpreter& in, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(in.heap().string(std::string(part)));
  return in.heap().list(std::move(items));
}

Value split_with(Interpreter& in, const Value& self, const Arguments& arguments, bool from_right) {
  const BoundArguments bound("split", arguments, {"sep", "maxsplit"});
  const std::int64_t limit = bound.integer(1, -1);
  std::optional<std::string_view> separator;
  if (bound.has(0)) {
    separator = bound.text(0);
    if (separator->empty()) fail("split: expected a separator that is not empty");
  }
  if (from_right) charge_search(in, self.as_string().size(), separator ? separator->size() : 1);
  return list_of(in, from_right ? split_right(bytes_of(self), separator, limit)
                                : split(bytes_of(self), separator, limit));
}

Value split_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  return split_with(in, self, arguments, false);
}
Value rsplit_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  return split_with(in, self, arguments, true);
}

Value splitlines_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("splitlines", arguments, {"keepends"});
  in.heap().charge_characters(self.as_string().size());
  return list_of(in, split_lines(bytes_of(self), bound.truth(0, false)));
}

/// The part of the text that optional start and end arguments (at index 1 and 2) choose.
struct Window {
  std::string_view text;
  std::size_t start = 0;  // in code points
  bool is_valid = true;   // false when start is beyond the end
};

Window window_of(Interpreter& in, const Value& self, const BoundArguments& bound) {
  const std::string_view text = bytes_of(self);
  if (!bound.has(1) && !bound.has(2)) return {text};
  in.heap().charge_characters(text.size());
  const auto length = static_cast<std::int64_t>(count_code_points(text));
  const auto clip = [&](std::int64_t index) {
    return index < 0 ? std::max<std::int64_t>(0, index + length) : index;
  };
  const std::int64_t start = bound.has(1) ? clip(bound.integer(1, 0)) : 0;
  const std::int64_t end = std::min(length, bound.has(2) ? clip(bound.integer(2, 0)) : length);
  if (start > end) return {{}, 0, false};
  const std::size_t begin = byte_offset(text, static_cast<std::size_t>(start));
  return {text.substr(begin, byte_offset(text, static_cast<std::size_t>(end)) - begin),
          static_cast<std::size_t>(start)};
}

Value affix_method(Interpreter& in, const Value& self, const Arguments& arguments, std::string_view name,
                   bool at_end) {
  const BoundArguments bound(name, arguments, {"affix", "start", "end"}, 1);
  const Window window = window_of(in, self, bound);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) {
      fail(fmt::format("{}: expected text or a tuple of texts, got a value of type {}", name,
                       type_name(affix)));
    }
    if (!window.is_valid) return false;
    in.heap().charge_scan(affix.as_string().size());
    return at_end ? window.text.ends_with(affix.as_string()) : window.text.starts_with(affix.as_string());
  };
  const Value& affix = bound.value(0);
  if (affix.is_undefined()) fail(affix.undefined_reason());
  if (!affix.is(Kind::kTuple)) return Value::boolean(matches(affix));
  const auto& affixes = affix.as_sequence().items;
  return Value::boolean(std::any_of(affixes.begin(), affixes.end(), matches));
}

Value startswith_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  return affix_method(in, self, arguments, "startswith", false);
}
Value endswith_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  return affix_method(in, self, arguments, "endswith", true);
}

/// Index in code points, or -1.
Integer find_with(Interpreter& in, const Value& self, const Arguments& arguments, bool from_right) {
  const BoundArguments bound("find", arguments, {"sub", "start", "end"}, 1);
  const std::string& needle = bound.text(0);
  const Window window = window_of(in, self, bound);
  in.heap().charge_characters(self.as_string().size() / (is_ascii(self.as_string()) ? 16 : 1));
  if (from_right) charge_search(in, window.text.size(), needle.size());
  if (!window.is_valid) return -1;
  const std::size_t at = from_right ? window.text.rfind(needle) : find_text(window.text, needle);
  if (at == std::string_view::npos) return -1;
  return static_cast<Integer>(window.start + count_code_points(window.text.substr(0, at)));
}

template <bool kFromRight, bool kMustExist>
Value find_method_of_text(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Integer at = find_with(in, self, arguments, kFromRight);
  if (kMustExist && at < 0) fail("index: expected the text to contain what is looked for");
  return Value::integer(at);
}

Value count_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("count", arguments, {"sub", "start", "end"}, 1);
  const std::string& needle = bound.text(0);
  const Window window = window_of(in, self, bound);
  in.heap().charge_characters(self.as_string().size());
  if (!window.is_valid) return Value::integer(0);
  if (needle.empty()) return Value::integer(static_cast<Integer>(count_code_points(window.text) + 1));
  Integer count = 0;
  for (std::size_t at = find_text(window.text, needle); at != std::string_view::npos;
       at = find_text(window.text, needle, at + needle.size())) {
    in.heap().charge_steps(1);
    ++count;
  }
  return Value::integer(count);
}

Value replace_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"}, 2);
  const std::string_view text = bytes_of(self);
  const std::string& from = bound.text(0);
  const std::string& to = bound.text(1);
  std::int64_t left = bound.integer(2, -1);
  TextBuilder out(in.heap());
  std::size_t start = 0;
  if (from.empty()) {  // before every character and at the end
    for (; left != 0 && start <= text.size(); --left) {
      in.heap().charge_steps(1);
      out.add(to);
      if (start == text.size()) return in.heap().string(out.take());
      std::int32_t cp = 0;
      const std::size_t length = code_point_length(text, start, &cp);
      out.add(text.substr(start, length));
      start += length;
    }
  } else {
    for (; left != 0; --left) {
      const std::size_t at = find_text(text, from, start);
      if (at == std::string_view::npos) break;
      in.heap().charge_steps(1);
      out.add(text.substr(start, at - start));
      out.add(to);
      start = at + from.size();
    }
  }
  out.add(text.substr(start));
  return in.heap().string(out.take());
}

Value join_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("join", arguments, {"iterable"}, 1);
  TextBuilder out(in.heap());
  bool first = true;
  for (const Value& element : in.elements(bound.value(0))) {
    in.heap().charge_steps(1);
    if (!element.is_string())
      fail(fmt::format("join: expected texts, got a value of type {}", type_name(element)));
    if (!first) out.add(self.as_string());
    first = false;
    out.add(element.as_string());
  }
  return in.heap().string(out.take());
}

enum class Align { kLeft, kRight, kCenter, kZeros };

template <Align kAlign>
Value pad_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("pad", arguments, {"width", "fillchar"}, 1);
  const std::string_view text = bytes_of(self);
  const std::string fill(kAlign == Align::kZeros ? std::string_view("0") : bound.text(1, " "));
  if (count_code_points(fill) != 1) fail("expected one character to fill with");
  const std::int64_t width = bound.integer(0, 0);
  const std::int64_t missing =
      std::max<std::int64_t>(0, width - static_cast<std::int64_t>(count_code_points(text)));
  in.heap().check_string(static_cast<std::size_t>(missing));
  in.heap().charge_steps(static_cast<std::uint64_t>(missing) / 8);
  std::int64_t left = kAlign == Align::kLeft ? 0 : missing;
  if (kAlign == Align::kCenter)
    left = missing / 2 + (missing & width & 1);  // the odd blank as Python places it
  TextBuilder out(in.heap());
  const bool has_sign = kAlign == Align::kZeros && !text.empty() && (text[0] == '-' || text[0] == '+');
  if (has_sign) out.add(text.substr(0, 1));
  for (std::int64_t i = 0; i < left; ++i) out.add(fill);
  out.add(text.substr(has_sign ? 1 : 0));
  for (std::int64_t i = left; i < missing; ++i) out.add(fill);
  return in.heap().string(out.take());
}

template <bool kFromRight>
Value partition_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("partition", arguments, {"sep"}, 1);
  const std::string_view text = bytes_of(self);
  const std::string& separator = bound.text(0);
  if (separator.empty()) fail("partition: expected a separator that is not empty");
  if (kFromRight) charge_search(in, text.size(), separator.size());
  const std::size_t at = kFromRight ? text.rfind(separator) : find_text(text, separator);
  const auto part = [&](std::string_view piece) { return in.heap().string(std::string(piece)); };
  if (at == std::string_view::npos) {
    return kFromRight ? in.heap().tuple({part({}), part({}), part(text)})
                      : in.heap().tuple({part(text), part({}), part({})});
  }
  return in.heap().tuple(
      {part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))});
}

Value removeprefix_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("removeprefix", arguments, {"prefix"}, 1);
  const std::string_view text = bytes_of(self);
  return in.heap().string(
      std::string(text.starts_with(bound.text(0)) ? text.substr(bound.text(0).size()) : text));
}

Value removesuffix_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("removesuffix", arguments, {"suffix"}, 1);
  std::string_view text = bytes_of(self);
  if (text.ends_with(bound.text(0))) text.remove_suffix(bound.text(0).size());
  return in.heap().string(std::string(text));
}

Value format_method(Interpreter& in, const Value& self, const Arguments& arguments) {
  return format_braces(in, self, arguments);
}

}  // namespace

Method find_string_method(std::string_view name) {
  static const std::unordered_map<std::string_view, Method> kMethods = {
      {"capitalize", convert<capitalize>},
      {"casefold", convert<lower>},
      {"center", pad_method<Align::kCenter>},
      {"count", count_method},
      {"endswith", endswith_method},
      {"find", find_method_of_text<false, false>},
      {"format", format_method},
      {"index", find_method_of_text<false, true>},
      {"isalnum", ask_class<CharacterClass::kAlphanumeric>},
      {"isalpha", ask_class<CharacterClass::kAlpha>},
      {"isascii", ask<is_ascii_text>},
      {"isdecimal", ask_class<CharacterClass::kDecimal>},
      {"isdigit", ask_class<CharacterClass::kDigit>},
      {"islower", ask<is_lower>},
      {"isnumeric", ask_class<CharacterClass::kNumeric>},
      {"isspace", ask_class<CharacterClass::kSpace>},
      {"isupper", ask<is_upper>},
      {"join", join_method},
      {"ljust", pad_method<Align::kLeft>},
      {"lower", convert<lower>},
      {"lstrip", strip_method<Side::kLeft>},
      {"partition", partition_method<false>},
      {"removeprefix", removeprefix_method},
      {"removesuffix", removesuffix_method},
      {"replace", replace_method},
      {"rfind", find_method_of_text<true, false>},
      {"rindex", find_method_of_text<true, true>},
      {"rjust", pad_method<Align::kRight>},
      {"rpartition", partition_method<true>},
      {"rsplit", rsplit_method},
      {"rstrip", strip_method<Side::kRight>},
      {"split", split_method},
      {"splitlines", splitlines_method},
      {"startswith", startswith_method},
      {"strip", strip_method<Side::kBoth>},
      {"swapcase", convert<swap_case>},
      {"title", convert<title>},
      {"upper", convert<upper>},
      {"zfill", pad_method<Align::kZeros>},
  };
  const auto it = kMethods.find(name);
  return it == kMethods.end() ? nullptr : it->second;
}

}  // namespace mererun::jinja
