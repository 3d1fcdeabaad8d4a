#pragma once

#include <optional>
#include <string_view>

#include "tokenizer/jinja_interpreter.h"

namespace mererun::jinja {

using Filter = Value (*)(Interpreter&, const Value& input, const Arguments&);
using Test = bool (*)(Interpreter&, const Value& input, const Arguments&);
using Method = Value (*)(Interpreter&, const Value& self, const Arguments&);

/// Each returns null for a name that does not exist.
Filter find_filter(std::string_view name);
Filter find_text_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);
Test find_test(std::string_view name);
/// A method of strings, lists, tuples, dicts or floats.
Method find_method(Kind kind, std::string_view name);
Method find_string_method(std::string_view name);

/// Calls a method; on markup, text arguments are escaped and text results stay markup, as markupsafe does.
Value call_method(Interpreter& interpreter, Method method, const Value& self, const Arguments& arguments);

/// Sets the entries of a dict, or of an iterable of pairs, in `into`.
void merge_dict(Interpreter& interpreter, Dict& into, const Value& more);

/// raise_exception, strftime_now, namespace, range, dict, cycler, joiner; nothing for another name.
std::optional<Value> make_global(Interpreter& interpreter, std::string_view name);

}  // namespace mererun::jinja
