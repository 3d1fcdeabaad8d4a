// Filters on lists, dicts and other collections.
#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_text.h"

namespace mererun::jinja {
namespace {

using Key = std::function<Value(const Value&)>;

/// Text folded to lower case for the filters that ignore case.
Value ignore_case(Interpreter& in, const Value& value) {
  if (!value.is_string()) return value;
  in.heap().charge_characters(value.as_string().size());
  return in.heap().string(lower(value.as_string()));
}

/// "a.b.0" as steps from an element to what a filter looks at.
std::vector<Value> attribute_path(Interpreter& in, const Value& attribute) {
  std::vector<Value> path;
  if (attribute.is_none()) return path;
  if (!attribute.is_string()) return {attribute};
  for (const std::string_view part : split(attribute.as_string(), ".", -1)) {
    if (all_in(part, CharacterClass::kDecimal)) {
      path.push_back(Value::integer(parse_integer(part, 10).value_or(0)));
    } else {
      path.push_back(in.heap().string(std::string(part)));
    }
  }
  return path;
}

Key attribute_getter(Interpreter& in, const Value& attribute, bool case_sensitive,
                     const Value* fallback = nullptr) {
  return [&in, case_sensitive, fallback, path = attribute_path(in, attribute)](const Value& element) {
    Value value = element;
    for (const Value& step : path) {
      value = in.item(value, step);
      if (value.is_undefined() && fallback != nullptr && !fallback->is_none()) value = *fallback;
    }
    return case_sensitive ? value : ignore_case(in, value);
  };
}

/// Stable sort by keys; `descending` keeps the order of equal elements too.
void sort_by(Interpreter& in, std::vector<Value>& elements, const Key& key, bool descending) {
  std::vector<std::pair<Value, Value>> keyed;
  keyed.reserve(elements.size());
  for (Value& element : elements) keyed.emplace_back(key(element), element);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return descending ? less(in.heap(), b.first, a.first) : less(in.heap(), a.first, b.first);
  });
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = keyed[i].second;
}

Value filter_length(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("length", arguments, {});
  std::size_t length = 0;
  switch (input.kind()) {
    case Kind::kUndefined: break;
    case Kind::kString:
      in.heap().charge_characters(input.as_string().size() / (is_ascii(input.as_string()) ? 16 : 1));
      length = count_code_points(input.as_string());
      break;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView: length = input.as_sequence().items.size(); break;
    case Kind::kDict: length = input.as_dict().size(); break;
    default:
      fail(fmt::format("length: expected a value that has a length, got one of type {}", type_name(input)));
  }
  return Value::integer(static_cast<Integer>(length));
}

Value filter_first(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("first", arguments, {});
  if (input.is(Kind::kIterator)) {
    Sequence& iterator = input.as_sequence();
    if (iterator.position < iterator.items.size()) return iterator.items[iterator.position++];
  } else if (const std::vector<Value> elements = in.elements(input); !elements.empty()) {
    return elements.front();
  }
  return Value::undefined("first: the sequence is empty");
}

Value filter_last(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("last", arguments, {});
  if (input.is(Kind::kIterator)) fail("last: expected a list, got an iterator");
  const std::vector<Value> elements = in.elements(input);
  return elements.empty() ? Value::undefined("last: the sequence is empty") : elements.back();
}

Value filter_list(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("list", arguments, {});
  return in.heap().list(in.elements(input));
}

Value filter_items(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("items", arguments, {});
  std::vector<Value> pairs;
  if (!input.is_undefined()) {
    if (!input.is(Kind::kDict))
      fail(fmt::format("items: expected a dict, got a value of type {}", type_name(input)));
    for (const auto& [key, value] : input.as_dict().entries()) pairs.push_back(in.heap().tuple({key, value}));
  }
  return in.heap().iterator(std::move(pairs));
}

Value filter_join(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("join", arguments, {"d", "attribute"});
  const std::string separator = bound[0] != nullptr ? to_text(in.heap(), bound.value(0)) : std::string();
  const Key key = attribute_getter(in, bound[1] != nullptr ? bound.value(1) : Value(), true);
  TextBuilder out(in.heap());
  bool first = true;
  for (const Value& element : in.elements(input)) {
    in.heap().charge_steps(1);
    if (!first) out.add(separator);
    first = false;
    append_text(out, key(element));
  }
  return in.heap().string(out.take());
}

Value filter_reverse(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("reverse", arguments, {});
  if (input.is_string()) return slice(in.heap(), input, Value(), Value(), Value::integer(-1));
  std::vector<Value> elements = in.elements(input);
  std::reverse(elements.begin(), elements.end());
  return input.is(Kind::kIterator) ? in.heap().list(std::move(elements))
                                   : in.heap().iterator(std::move(elements));
}

Value filter_sort(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> elements = in.elements(input);
  const bool case_sensitive = bound.truth(1, false);
  // "a,b" sorts by several attributes.
  std::vector<Key> keys;
  if (bound[2] != nullptr && bound.value(2).is_string()) {
    for (const std::string_view part : split(bound.text(2), ",", -1)) {
      keys.push_back(attribute_getter(in, in.heap().string(std::string(part)), case_sensitive));
    }
  } else {
    keys.push_back(attribute_getter(in, bound[2] != nullptr ? bound.value(2) : Value(), case_sensitive));
  }
  const Key key = [&](const Value& element) {
    std::vector<Value> parts;
    for (const Key& part : keys) parts.push_back(part(element));
    return in.heap().list(std::move(parts));
  };
  sort_by(in, elements, key, bound.truth(0, false));
  return in.heap().list(std::move(elements));
}

Value filter_dictsort(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!input.is(Kind::kDict))
    fail(fmt::format("dictsort: expected a dict, got a value of type {}", type_name(input)));
  const std::string_view by = bound.text(1, "key");
  if (by != "key" && by != "value") fail(fmt::format("dictsort: expected 'key' or 'value', got '{}'", by));
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.as_dict().entries()) pairs.push_back(in.heap().tuple({key, value}));
  sort_by(in, pairs, attribute_getter(in, Value::integer(by == "key" ? 0 : 1), bound.truth(0, false)),
          bound.truth(2, false));
  return in.heap().list(std::move(pairs));
}

Value filter_unique(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("unique", arguments, {"case_sensitive", "attribute"});
  const Key key = attribute_getter(in, bound[1] != nullptr ? bound.value(1) : Value(), bound.truth(0, false));
  const Value seen = in.heap().dict();
  std::vector<Value> out;
  for (const Value& element : in.elements(input)) {
    const Value of_element = key(element);
    if (seen.as_dict().find(in.heap(), of_element) != nullptr) continue;
    seen.as_dict().set(in.heap(), of_element, Value());
    out.push_back(element);
  }
  return in.heap().iterator(std::move(out));
}

Value extreme(Interpreter& in, const Value& input, const Arguments& arguments, std::string_view name,
              bool largest) {
  const BoundArguments bound(name, arguments, {"case_sensitive", "attribute"});
  const std::vector<Value> elements = in.elements(input);
  if (elements.empty()) return Value::undefined(fmt::format("{}: the sequence is empty", name));
  const Key key = attribute_getter(in, bound[1] != nullptr ? bound.value(1) : Value(), bound.truth(0, false));
  Value best = elements[0];
  Value best_key = key(best);
  for (std::size_t i = 1; i < elements.size(); ++i) {
    const Value candidate = key(elements[i]);
    if (largest ? less(in.heap(), best_key, candidate) : less(in.heap(), candidate, best_key)) {
      best = elements[i];
      best_key = candidate;
    }
  }
  return best;
}

Value filter_min(Interpreter& in, const Value& input, const Arguments& arguments) {
  return extreme(in, input, arguments, "min", false);
}
Value filter_max(Interpreter& in, const Value& input, const Arguments& arguments) {
  return extreme(in, input, arguments, "max", true);
}

Value filter_sum(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("sum", arguments, {"attribute", "start"});
  const Key key = attribute_getter(in, bound[0] != nullptr ? bound.value(0) : Value(), true);
  Value total = bound[1] != nullptr ? bound.value(1) : Value::integer(0);
  if (total.is_string()) fail("sum: expected a start that is no text");
  for (const Value& element : in.elements(input))
    total = binary(in.heap(), Operator::kAdd, total, key(element));
  return total;
}

Value filter_map(Interpreter& in, const Value& input, const Arguments& arguments) {
  std::vector<Value> out;
  if (!truthy(input)) return in.heap().iterator({});  // also for none
  if (arguments.positional.empty()) {
    const BoundArguments bound("map", arguments, {"attribute", "default"}, 1);
    const Key key = attribute_getter(in, bound.value(0), true, bound[1]);
    for (const Value& element : in.elements(input)) out.push_back(key(element));
  } else {
    if (!arguments.positional[0].is_string()) fail("map: expected the name of a filter");
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    for (const Value& element : in.elements(input)) {
      out.push_back(in.apply_filter(arguments.positional[0].as_string(), element, rest));
    }
  }
  return in.heap().iterator(std::move(out));
}

/// select, reject, selectattr and rejectattr: keeps the elements for which the test gives `wanted`.
Value filter_by_test(Interpreter& in, const Value& input, const Arguments& arguments, bool by_attribute,
                     bool wanted) {
  if (!truthy(input)) return in.heap().iterator({});
  Arguments rest = arguments;
  Key key = [](const Value& element) { return element; };
  if (by_attribute) {
    if (rest.positional.empty()) fail("selectattr: expected the name of an attribute");
    key = attribute_getter(in, rest.positional[0], true);
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    if (!rest.positional[0].is_string()) fail("select: expected the name of a test");
    test = rest.positional[0].as_string();
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> out;
  for (const Value& element : in.elements(input)) {
    const Value value = key(element);
    const bool passes = test.empty() ? truthy(value) : in.apply_test(test, value, rest);
    if (passes == wanted) out.push_back(element);
  }
  return in.heap().iterator(std::move(out));
}

Value filter_select(Interpreter& in, const Value& input, const Arguments& arguments) {
  return filter_by_test(in, input, arguments, false, true);
}
Value filter_reject(Interpreter& in, const Value& input, const Arguments& arguments) {
  return filter_by_test(in, input, arguments, false, false);
}
Value filter_selectattr(Interpreter& in, const Value& input, const Arguments& arguments) {
  return filter_by_test(in, input, arguments, true, true);
}
Value filter_rejectattr(Interpreter& in, const Value& input, const Arguments& arguments) {
  return filter_by_test(in, input, arguments, true, false);
}

Value filter_batch(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t size = bound.integer(0, 1);
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& element : in.elements(input)) {
    if (static_cast<std::int64_t>(batch.size()) == size)
      batches.push_back(in.heap().list(std::exchange(batch, {})));
    batch.push_back(element);
  }
  if (!batch.empty()) {
    while (bound.has(1) && static_cast<std::int64_t>(batch.size()) < size) {
      in.heap().charge_steps(1);
      batch.push_back(bound.value(1));
    }
    batches.push_back(in.heap().list(std::move(batch)));
  }
  return in.heap().iterator(std::move(batches));
}

Value filter_slice(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("slice", arguments, {"slices", "fill_with"}, 1);
  const std::vector<Value> elements = in.elements(input);
  const std::int64_t slices = bound.integer(0, 1);
  if (slices == 0) fail("slice: expected a number of slices other than zero");
  const auto size = static_cast<std::int64_t>(elements.size());
  std::vector<Value> out;
  std::int64_t start = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    in.heap().charge_steps(1);
    const bool is_longer = i < size % slices;
    const std::int64_t end = start + size / slices + (is_longer ? 1 : 0);
    std::vector<Value> part(elements.begin() + start, elements.begin() + end);
    if (bound.has(1) && !is_longer) part.push_back(bound.value(1));
    out.push_back(in.heap().list(std::move(part)));
    start = end;
  }
  return in.heap().iterator(std::move(out));
}

Value filter_groupby(Interpreter& in, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = bound.truth(2, false);
  const Key key = attribute_getter(in, bound.value(0), case_sensitive, bound[1]);
  const Key name = attribute_getter(in, bound.value(0), true, bound[1]);
  std::vector<Value> elements = in.elements(input);
  sort_by(in, elements, key, false);
  std::vector<Value> groups;
  for (std::size_t i = 0; i < elements.size();) {
    std::size_t end = i + 1;
    const Value first = key(elements[i]);
    while (end < elements.size() && equal(in.heap(), key(elements[end]), first)) ++end;
    const auto begin = elements.begin() + static_cast<std::ptrdiff_t>(i);
    const Value members = in.heap().list({begin, elements.begin() + static_cast<std::ptrdiff_t>(end)});
    const Value group = in.heap().tuple({name(elements[i]), members});
    group.as_sequence().is_group = true;
    groups.push_back(group);
    i = end;
  }
  return in.heap().list(std::move(groups));
}

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"batch", filter_batch},     {"count", filter_length},    {"dictsort", filter_dictsort},
      {"first", filter_first},     {"groupby", filter_groupby}, {"items", filter_items},
      {"join", filter_join},       {"last", filter_last},       {"length", filter_length},
      {"list", filter_list},       {"map", filter_map},         {"max", filter_max},
      {"min", filter_min},         {"reject", filter_reject},   {"rejectattr", filter_rejectattr},
      {"reverse", filter_reverse}, {"select", filter_select},   {"selectattr", filter_selectattr},
      {"slice", filter_slice},     {"sort", filter_sort},       {"sum", filter_sum},
      {"unique", filter_unique},
  };
  const auto it = kFilters.find(name);
  return it == kFilters.end() ? nullptr : it->second;
}

}  // namespace mererun::jinja
