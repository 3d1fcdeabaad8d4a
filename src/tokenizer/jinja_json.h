#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tokenizer/jinja_value.h"

namespace mererun::jinja {

/// How json.dumps writes; the defaults are those of the `tojson` of chat templates: non-ASCII text kept, keys
/// in their order, nothing escaped for HTML.
struct JsonStyle {
  std::optional<std::string> indent;  // repeated per level; with it every element has its line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};

/// Fails for values that JSON has no form for (undefined, functions, iterators) and for cycles.
void append_json(TextBuilder& out, const Value& value, const JsonStyle& style);

/// The template's value of a JSON value; objects keep their key order.
Value from_json(Heap& heap, const nlohmann::ordered_json& json, int depth = 0);

}  // namespace mererun::jinja
