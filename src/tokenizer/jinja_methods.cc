// Python's methods of list, tuple, dict and float, and how a method is called.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_text.h"

namespace mererun::jinja {
namespace {

// ---- lists and tuples

std::vector<Value>& items_of(const Value& self) { return self.as_sequence().items; }

Value list_append(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("append", arguments, {"object"}, 1);
  in.heap().charge_bytes(sizeof(Value));
  items_of(self).push_back(bound.value(0));
  return {};
}

Value list_extend(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("extend", arguments, {"iterable"}, 1);
  const std::vector<Value> more = in.elements(bound.value(0));
  in.heap().charge_bytes(more.size() * sizeof(Value));
  items_of(self).insert(items_of(self).end(), more.begin(), more.end());
  return {};
}

Value list_insert(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("insert", arguments, {"index", "object"}, 2);
  std::vector<Value>& items = items_of(self);
  in.heap().charge_bytes(sizeof(Value));
  in.heap().charge_steps(items.size() / 8);
  const auto size = static_cast<std::int64_t>(items.size());
  std::int64_t index = bound.integer(0, 0);
  if (index < 0) index += size;
  items.insert(items.begin() + std::clamp<std::int64_t>(index, 0, size), bound.value(1));
  return {};
}

Value list_pop(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("pop", arguments, {"index"});
  std::vector<Value>& items = items_of(self);
  const auto size = static_cast<std::int64_t>(items.size());
  std::int64_t index = bound.integer(0, -1);
  if (index < 0) index += size;
  if (index < 0 || index >= size) fail("pop: expected an index inside the list");
  in.heap().charge_steps(items.size() / 8);
  Value value = items[static_cast<std::size_t>(index)];
  items.erase(items.begin() + index);
  return value;
}

/// Index of the element, or the size.
std::size_t position_in(Interpreter& in, const std::vector<Value>& items, const Value& wanted) {
  std::size_t i = 0;
  while (i < items.size() && !equal(in.heap(), items[i], wanted)) ++i;
  return i;
}

Value list_remove(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("remove", arguments, {"value"}, 1);
  const std::size_t at = position_in(in, items_of(self), bound.value(0));
  if (at == items_of(self).size()) fail("remove: expected a value that is in the list");
  items_of(self).erase(items_of(self).begin() + static_cast<std::ptrdiff_t>(at));
  return {};
}

Value list_index(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("index", arguments, {"value"}, 1);
  const std::size_t at = position_in(in, items_of(self), bound.value(0));
  if (at == items_of(self).size()) fail("index: expected a value that is in the list");
  return Value::integer(static_cast<Integer>(at));
}

Value list_count(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("count", arguments, {"value"}, 1);
  const auto& items = items_of(self);
  return Value::integer(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return equal(in.heap(), item, bound.value(0)); }));
}

Value list_clear(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("clear", arguments, {});
  items_of(self).clear();
  return {};
}

Value list_copy(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("copy", arguments, {});
  return in.heap().list(items_of(self));
}

Value list_reverse(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("reverse", arguments, {});
  in.heap().charge_steps(items_of(self).size() / 8);
  std::reverse(items_of(self).begin(), items_of(self).end());
  return {};
}

Value list_sort(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("sort", arguments, {"reverse"});
  const bool descending = bound.truth(0, false);
  std::vector<Value> sorted = items_of(self);  // the list stays whole when a comparison fails
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Value& a, const Value& b) {
    return descending ? less(in.heap(), b, a) : less(in.heap(), a, b);
  });
  items_of(self) = std::move(sorted);
  return {};
}

// ---- dicts

Value dict_get(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("get", arguments, {"key", "default"}, 1);
  if (const Value* value = self.as_dict().find(in.heap(), bound.value(0))) return *value;
  return bound[1] != nullptr ? bound.value(1) : Value();
}

Value dict_keys(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("keys", arguments, {});
  return in.heap().sequence(Kind::kView, in.elements(self), "dict_keys");
}

Value dict_values(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("values", arguments, {});
  std::vector<Value> values;
  for (const auto& [key, value] : self.as_dict().entries()) values.push_back(value);
  return in.heap().sequence(Kind::kView, std::move(values), "dict_values");
}

Value dict_items(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("items", arguments, {});
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.as_dict().entries()) pairs.push_back(in.heap().tuple({key, value}));
  return in.heap().sequence(Kind::kView, std::move(pairs), "dict_items");
}

Value dict_update(Interpreter& in, const Value& self, const Arguments& arguments) {
  if (arguments.positional.size() > 1) fail("update: expected at most one dict");
  if (!arguments.positional.empty()) merge_dict(in, self.as_dict(), arguments.positional[0]);
  for (const auto& [name, value] : arguments.keyword)
    self.as_dict().set(in.heap(), in.heap().string(name), value);
  return {};
}

Value dict_pop(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("pop", arguments, {"key", "default"}, 1);
  const Value* found = self.as_dict().find(in.heap(), bound.value(0));
  if (found == nullptr) {
    if (bound[1] == nullptr) fail("pop: expected a key that is in the dict");
    return bound.value(1);
  }
  const Value value = *found;
  in.heap().charge_steps(self.as_dict().size());
  self.as_dict().erase(in.heap(), bound.value(0));
  return value;
}

Value dict_setdefault(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("setdefault", arguments, {"key", "default"}, 1);
  if (const Value* value = self.as_dict().find(in.heap(), bound.value(0))) return *value;
  const Value value = bound[1] != nullptr ? bound.value(1) : Value();
  self.as_dict().set(in.heap(), bound.value(0), value);
  return value;
}

Value dict_copy(Interpreter& in, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("copy", arguments, {});
  const Value copy = in.heap().dict();
  merge_dict(in, copy.as_dict(), self);
  return copy;
}

Value dict_clear(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("clear", arguments, {});
  self.as_dict().clear();
  return {};
}

Value float_is_integer(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("is_integer", arguments, {});
  return Value::boolean(std::isfinite(self.as_double()) && std::trunc(self.as_double()) == self.as_double());
}

using MethodTable = std::unordered_map<std::string_view, Method>;

Method find_in(const MethodTable& table, std::string_view name) {
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace

void merge_dict(Interpreter& in, Dict& into, const Value& more) {
  if (more.is(Kind::kDict)) {
    const std::vector<Dict::Entry> entries = more.as_dict().entries();  // a copy: it may be the same dict
    in.heap().charge_steps(entries.size());
    for (const auto& [key, value] : entries) into.set(in.heap(), key, value);
    return;
  }
  for (const Value& pair : in.elements(more)) {
    const std::vector<Value> parts = in.elements(pair);
    if (parts.size() != 2)
      fail(fmt::format("dict: expected pairs of key and value, got {} values", parts.size()));
    into.set(in.heap(), parts[0], parts[1]);
  }
}

Method find_method(Kind kind, std::string_view name) {
  static const MethodTable kListMethods = {
      {"append", list_append}, {"clear", list_clear},     {"copy", list_copy},     {"count", list_count},
      {"extend", list_extend}, {"index", list_index},     {"insert", list_insert}, {"pop", list_pop},
      {"remove", list_remove}, {"reverse", list_reverse}, {"sort", list_sort},
  };
  static const MethodTable kTupleMethods = {{"count", list_count}, {"index", list_index}};
  static const MethodTable kDictMethods = {
      {"clear", dict_clear},           {"copy", dict_copy},     {"get", dict_get},
      {"items", dict_items},           {"keys", dict_keys},     {"pop", dict_pop},
      {"setdefault", dict_setdefault}, {"update", dict_update}, {"values", dict_values},
  };
  static const MethodTable kFloatMethods = {{"is_integer", float_is_integer}};
  switch (kind) {
    case Kind::kString: return find_string_method(name);
    case Kind::kList: return find_in(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange: return find_in(kTupleMethods, name);
    case Kind::kDict: return find_in(kDictMethods, name);
    case Kind::kFloat: return find_in(kFloatMethods, name);
    default: return nullptr;
  }
}

Value call_method(Interpreter& interpreter, Method method, const Value& self, const Arguments& arguments) {
  Heap& heap = interpreter.heap();
  heap.charge_steps(1);
  if (!self.is_markup()) return method(interpreter, self, arguments);
  Arguments escaped = arguments;
  const auto escape = [&](Value& value) {
    if (value.is_string() && !value.is_markup()) value = heap.string(escape_html(value.as_string()), true);
  };
  for (Value& value : escaped.positional) escape(value);
  for (auto& [name, value] : escaped.keyword) escape(value);
  const Value result = method(interpreter, self, escaped);
  if (result.is_string()) return heap.string(result.as_string(), true);
  if (result.is(Kind::kList) || result.is(Kind::kTuple)) {
    for (Value& part : result.as_sequence().items) {
      if (part.is_string()) part = heap.string(part.as_string(), true);
    }
  }
  return result;
}

}  // namespace mererun::jinja
