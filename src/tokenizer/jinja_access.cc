// How the interpreter looks into values: elements, attributes, items, membership.
#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_text.h"

namespace mererun::jinja {
namespace {

/// "str()" of a key, for the message of the undefined value that a missing item gives.
std::shared_ptr<const Text> name_of_key(Heap& heap, const Value& key) {
  return key.is_string() ? key.as_text() : heap.string(to_text(heap, key)).as_text();
}

Value character_at(Heap& heap, const Value& text, Integer index, bool& found) {
  const std::string& bytes = text.as_string();
  heap.charge_characters(is_ascii(bytes) ? bytes.size() / 16 : bytes.size());
  const auto length = static_cast<Integer>(count_code_points(bytes));
  if (index < 0) index += length;
  found = index >= 0 && index < length;
  if (!found) return {};
  const std::size_t begin = byte_offset(bytes, static_cast<std::size_t>(index));
  std::int32_t cp = 0;
  return heap.string(bytes.substr(begin, code_point_length(bytes, begin, &cp)), text.is_markup());
}

}  // namespace

std::vector<Value> Interpreter::elements(const Value& value) {
  std::vector<Value> out;
  switch (value.kind()) {
    case Kind::kUndefined: return out;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView: out = value.as_sequence().items; break;
    case Kind::kIterator: {
      Sequence& iterator = value.as_sequence();
      out.assign(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.position),
                 iterator.items.end());
      iterator.position = iterator.items.size();
      break;
    }
    case Kind::kDict:
      for (const auto& [key, unused] : value.as_dict().entries()) out.push_back(key);
      break;
    case Kind::kString: {
      const std::string& text = value.as_string();
      for (std::size_t i = 0; i < text.size();) {
        std::int32_t cp = 0;
        const std::size_t length = code_point_length(text, i, &cp);
        out.push_back(heap_.string(text.substr(i, length)));
        i += length;
      }
      break;
    }
    default:
      fail(fmt::format("expected something to iterate over, got a value of type {}", type_name(value)));
  }
  heap_.charge_steps(out.size() / 8);
  return out;
}

std::optional<Value> Interpreter::method_of(const Value& base, const Value& name) {
  const Method method = find_method(base.kind(), name.as_string());
  if (method == nullptr) return std::nullopt;
  return heap_.callable(name.as_string(),
                        [method, base](Interpreter& interpreter, const Arguments& arguments) {
                          return call_method(interpreter, method, base, arguments);
                        });
}

Value Interpreter::loop_attribute(const Value& loop_value, std::string_view name) {
  LoopState& loop = loop_value.as_loop();
  const auto count = [](std::size_t n) { return Value::integer(static_cast<Integer>(n)); };
  if (name == "index") return count(loop.index + 1);
  if (name == "index0") return count(loop.index);
  if (name == "first") return Value::boolean(loop.index == 0);
  if (name == "last") return Value::boolean(loop.peek() == nullptr);
  if (name == "length") return count(loop.length());
  if (name == "revindex") return count(loop.length() - loop.index);
  if (name == "revindex0") return count(loop.length() - loop.index - 1);
  if (name == "depth") return count(1);  // counts recursive loops only, which there are none of
  if (name == "depth0") return count(0);
  if (name == "previtem") {
    return loop.previous ? *loop.previous : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    const Value* next = loop.peek();
    return next != nullptr ? *next : Value::undefined("there is no next item");
  }
  if (name == "cycle") {
    return heap_.callable("cycle", [&loop](Interpreter&, const Arguments& arguments) {
      if (arguments.positional.empty()) fail("cycle: expected at least one value");
      return arguments.positional[loop.index % arguments.positional.size()];
    });
  }
  if (name == "changed") {
    return heap_.callable("changed", [&loop](Interpreter& interpreter, const Arguments& arguments) {
      const Value values = interpreter.heap().tuple(arguments.positional);
      const bool is_same = loop.last_changed && equal(interpreter.heap(), *loop.last_changed, values);
      loop.last_changed = values;
      return Value::boolean(!is_same);
    });
  }
  return Value::undefined(fmt::format("'loop' has no attribute '{}'", name));
}

Value Interpreter::attribute(const Value& base, const Value& name) {
  const std::string& text = name.as_string();
  switch (base.kind()) {
    case Kind::kUndefined: fail(base.undefined_reason());
    case Kind::kLoop: return loop_attribute(base, text);
    case Kind::kNamespace:
      if (const Value* value = base.as_dict().find(text)) return *value;
      break;
    case Kind::kDict:
      if (std::optional<Value> method = method_of(base, name)) return *method;
      if (const Value* value = base.as_dict().find(text)) return *value;
      break;
    case Kind::kTuple:
      if (base.as_sequence().is_group && text == "grouper") return base.as_sequence().items[0];
      if (base.as_sequence().is_group && text == "list") return base.as_sequence().items[1];
      [[fallthrough]];
    default:
      if (std::optional<Value> method = method_of(base, name)) return *method;
      break;
  }
  return Value::undefined_attribute(name.as_text(), base.kind());
}

Value Interpreter::item(const Value& base, const Value& key) {
  switch (base.kind()) {
    case Kind::kUndefined: fail(base.undefined_reason());
    case Kind::kDict:
      if (!key.is(Kind::kList) && !key.is(Kind::kDict)) {
        if (const Value* value = base.as_dict().find(heap_, key)) return *value;
      }
      break;
    case Kind::kString:
      if (key.is_integral()) {
        bool found = false;
        Value character = character_at(heap_, base, key.as_integer(), found);
        if (found) return character;
      }
      break;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      if (key.is_integral()) {
        const auto& items = base.as_sequence().items;
        Integer index = key.as_integer();
        const auto size = static_cast<Integer>(items.size());
        if (index < 0 && index >= -size) index += size;
        if (index >= 0 && index < size) return items[static_cast<std::size_t>(index)];
      }
      break;
    default: break;
  }
  if (key.is_string()) return attribute(base, key);  // x['method'] and namespace['field'] work as in Jinja2
  return Value::undefined_attribute(name_of_key(heap_, key), base.kind());
}

bool Interpreter::contains(const Value& container, const Value& element) {
  switch (container.kind()) {
    case Kind::kString:
      if (element.is_undefined()) fail(element.undefined_reason());
      if (!element.is_string()) {
        fail(
            fmt::format("in: expected text to look for in text, got a value of type {}", type_name(element)));
      }
      heap_.charge_scan(container.as_string().size());
      return find_text(container.as_string(), element.as_string()) != std::string_view::npos;
    case Kind::kDict: return container.as_dict().find(heap_, element) != nullptr;
    case Kind::kUndefined: return false;
    default: break;
  }
  const auto any_equal = [&](const std::vector<Value>& candidates) {
    return std::any_of(candidates.begin(), candidates.end(),
                       [&](const Value& candidate) { return equal(heap_, candidate, element); });
  };
  const bool is_iterator = container.is(Kind::kIterator) || !container.is_sequence_object();
  return any_equal(is_iterator ? elements(container) : container.as_sequence().items);
}

}  // namespace mererun::jinja
