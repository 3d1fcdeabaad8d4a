// The functions that every template can call.
#include <fmt/format.h>

#include <ctime>
#include <memory>

#include "base/error.h"
#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_builtins.h"

namespace mererun::jinja {
namespace {

Value raise_exception(Interpreter& in, const Arguments& arguments) {
  const BoundArguments bound("raise_exception", arguments, {"message"}, 1);
  throw Error(ErrorCode::kInvalidArgument, to_text(in.heap(), bound.value(0)));
}

Value strftime_now(Interpreter& in, const Arguments& arguments) {
  const BoundArguments bound("strftime_now", arguments, {"format"}, 1);
  const std::string& format = bound.text(0);
  if (format.empty()) return in.heap().string({});
  const std::tm now = in.clock()();
  char text[1024];
  const std::size_t length = std::strftime(text, sizeof text, format.c_str(), &now);
  if (length == 0) fail("strftime_now: expected a format whose text is shorter than 1024 bytes");
  return in.heap().string(std::string(text, length));
}

Value make_namespace(Interpreter& in, const Arguments& arguments) {
  const Value space = in.heap().name_space();
  for (const Value& more : arguments.positional) merge_dict(in, space.as_dict(), more);
  for (const auto& [name, value] : arguments.keyword)
    space.as_dict().set(in.heap(), in.heap().string(name), value);
  return space;
}

Value make_dict(Interpreter& in, const Arguments& arguments) {
  const Value dict = in.heap().dict();
  if (arguments.positional.size() > 1) fail("dict: expected at most one value to copy");
  if (!arguments.positional.empty()) merge_dict(in, dict.as_dict(), arguments.positional[0]);
  for (const auto& [name, value] : arguments.keyword)
    dict.as_dict().set(in.heap(), in.heap().string(name), value);
  return dict;
}

Value make_range(Interpreter& in, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.keyword.empty())
    fail("range: expected one to three integers");
  const std::int64_t start = given.size() == 1 ? 0 : to_index(given[0], "range");
  const std::int64_t stop = to_index(given.size() == 1 ? given[0] : given[1], "range");
  const std::int64_t step = given.size() == 3 ? to_index(given[2], "range") : 1;
  if (step == 0) fail("range: expected a step other than zero");
  const Integer span = step > 0 ? static_cast<Integer>(stop) - start : static_cast<Integer>(start) - stop;
  const Integer stride = step > 0 ? static_cast<Integer>(step) : -static_cast<Integer>(step);
  const Integer count = span > 0 ? (span + stride - 1) / stride : 0;
  if (count > in.heap().limits().max_range) {
    fail(fmt::format("range: expected at most {} elements, got {}", in.heap().limits().max_range, count));
  }
  std::vector<Value> items;
  for (Integer i = 0; i < count; ++i) items.push_back(Value::integer(start + i * step));
  return in.heap().sequence(Kind::kRange, std::move(items),
                            step == 1 ? fmt::format("range({}, {})", start, stop)
                                      : fmt::format("range({}, {}, {})", start, stop, step));
}

/// cycler(a, b): .current, .next(), .reset().
Value make_cycler(Interpreter& in, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("cycler: expected at least one value");
  Heap& heap = in.heap();
  const Value cycler = heap.name_space();
  Dict* const fields = &cycler.as_dict();
  const auto move_to = [fields, values = arguments.positional](Interpreter& interpreter, std::size_t index) {
    const Value current = *fields->find("current");
    fields->set(interpreter.heap(), interpreter.heap().string("current"), values[index % values.size()]);
    return current;
  };
  const auto position = std::make_shared<std::size_t>(0);
  fields->set(heap, heap.string("current"), arguments.positional[0]);
  fields->set(heap, heap.string("next"),
              heap.callable("next", [move_to, position](Interpreter& i, const Arguments&) {
                return move_to(i, ++*position);
              }));
  fields->set(heap, heap.string("reset"),
              heap.callable("reset", [move_to, position](Interpreter& i, const Arguments&) {
                move_to(i, *position = 0);
                return Value();
              }));
  return cycler;
}

/// joiner(sep): a function that gives nothing the first time and the separator afterwards.
Value make_joiner(Interpreter& in, const Arguments& arguments) {
  const BoundArguments bound("joiner", arguments, {"sep"});
  const Value separator = bound[0] != nullptr ? bound.value(0) : in.heap().string(", ");
  return in.heap().callable("joiner",
                            [separator, used = false](Interpreter& interpreter, const Arguments&) mutable {
                              return std::exchange(used, true) ? separator : interpreter.heap().string({});
                            });
}

}  // namespace

std::optional<Value> make_global(Interpreter& interpreter, std::string_view name) {
  using Global = Value (*)(Interpreter&, const Arguments&);
  static const std::unordered_map<std::string_view, Global> kGlobals = {
      {"cycler", make_cycler},        {"dict", make_dict},   {"joiner", make_joiner},
      {"namespace", make_namespace},  {"range", make_range}, {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
  };
  const auto it = kGlobals.find(name);
  if (it == kGlobals.end()) return std::nullopt;
  return interpreter.heap().callable(std::string(name), it->second);
}

}  // namespace mererun::jinja
