// How values print: str(), repr() and JSON, as Python writes them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "tokenizer/jinja_json.h"
#include "tokenizer/jinja_text.h"
#include "tokenizer/jinja_value.h"

namespace mererun::jinja {
namespace {

void append_string_repr(TextBuilder& out, std::string_view text) {
  out.heap().charge_steps(text.size() / 4);  // character by character
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.add(1, quote);
  for (std::size_t i = 0; i < text.size();) {
    std::int32_t cp = 0;
    const std::size_t length = code_point_length(text, i, &cp);
    if (cp == quote || cp == '\\') {
      out.add(1, '\\');
      out.add(text.substr(i, 1));
    } else if (cp == '\n') {
      out.add("\\n");
    } else if (cp == '\r') {
      out.add("\\r");
    } else if (cp == '\t') {
      out.add("\\t");
    } else if (cp < 0 || is_printable(cp)) {
      out.add(text.substr(i, length));
    } else if (cp < 0x100) {
      out.add(fmt::format("\\x{:02x}", cp));
    } else {
      out.add(cp < 0x10000 ? fmt::format("\\u{:04x}", cp) : fmt::format("\\U{:08x}", cp));
    }
    i += length;
  }
  out.add(1, quote);
}

void append_items(TextBuilder& out, const std::vector<Value>& items, int depth) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.add(", ");
    first = false;
    append_repr(out, item, depth + 1);
  }
}

void append_dict_repr(TextBuilder& out, const Dict& dict, int depth) {
  out.add("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out.add(", ");
    first = false;
    append_repr(out, key, depth + 1);
    out.add(": ");
    append_repr(out, value, depth + 1);
  }
  out.add("}");
}

void append_sequence_repr(TextBuilder& out, const Value& value, int depth) {
  const Sequence& sequence = value.as_sequence();
  switch (value.kind()) {
    case Kind::kList:
      out.add("[");
      append_items(out, sequence.items, depth);
      out.add("]");
      break;
    case Kind::kTuple:
      out.add("(");
      append_items(out, sequence.items, depth);
      out.add(sequence.items.size() == 1 ? ",)" : ")");
      break;
    case Kind::kView:
      out.add(sequence.label);
      out.add("([");
      append_items(out, sequence.items, depth);
      out.add("])");
      break;
    case Kind::kRange: out.add(sequence.label); break;
    default: out.add("<iterator>"); break;  // Python prints an address here; no template means to
  }
}

/// Writes one value as json.dumps does.
class JsonWriter {
 public:
  JsonWriter(TextBuilder& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const Value& value, int depth) {
    out_.heap().charge_steps(1);
    if (depth > kMaxNesting) fail("tojson: expected values nested less deep");
    switch (value.kind()) {
      case Kind::kNone: out_.add("null"); break;
      case Kind::kBool: out_.add(value.as_bool() ? "true" : "false"); break;
      case Kind::kInt: out_.add(integer_text(value.as_integer())); break;
      case Kind::kFloat: out_.add(number(value.as_double())); break;
      case Kind::kString: write_string(value.as_string()); break;
      case Kind::kList:
      case Kind::kTuple: write_list(value.as_sequence(), depth); break;
      case Kind::kDict: write_dict(value.as_dict(), depth); break;
      default: fail(fmt::format("tojson: expected a JSON value, got a value of type {}", type_name(value)));
    }
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_text(value);
  }

  void write_string(std::string_view text) {
    out_.heap().charge_characters(text.size());
    out_.add("\"");
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t plain = plain_length(text.substr(i));
      if (plain != 0) {
        out_.add(text.substr(i, plain));
        i += plain;
        continue;
      }
      std::int32_t cp = 0;
      const std::size_t length = code_point_length(text, i, &cp);
      switch (cp) {
        case '"': out_.add("\\\""); break;
        case '\\': out_.add("\\\\"); break;
        case '\n': out_.add("\\n"); break;
        case '\r': out_.add("\\r"); break;
        case '\t': out_.add("\\t"); break;
        case '\f': out_.add("\\f"); break;
        case '\b': out_.add("\\b"); break;
        default:
          if (cp >= 0 && (cp < 0x20 || (style_.ensure_ascii && cp >= 0x7F))) {
            write_escape(cp);
          } else {
            out_.add(text.substr(i, length));
          }
      }
      i += length;
    }
    out_.add("\"");
  }

  /// Leading bytes that JSON takes as they are: nearly all of an ordinary text.
  std::size_t plain_length(std::string_view text) const {
    std::size_t i = 0;
    for (; i < text.size(); ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      if (c < 0x20 || c == '"' || c == '\\' || (style_.ensure_ascii && c >= 0x7F)) break;
    }
    return i;
  }

  void write_escape(std::int32_t cp) {
    out_.heap().charge_steps(1);
    if (cp == 0x7F) {
      out_.add(1, '\x7f');  // Python counts it as plain ASCII
    } else if (cp < 0x10000) {
      out_.add(fmt::format("\\u{:04x}", cp));
    } else {
      const int high = 0xD800 + ((cp - 0x10000) >> 10);
      const int low = 0xDC00 + ((cp - 0x10000) & 0x3FF);
      out_.add(fmt::format("\\u{:04x}\\u{:04x}", high, low));
    }
  }

  void line_break(int depth) {
    if (!style_.indent) return;
    out_.add("\n");
    for (int i = 0; i < depth; ++i) out_.add(*style_.indent);
  }

  void write_list(const Sequence& list, int depth) {
    out_.add("[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i != 0) out_.add(style_.item_separator);
      line_break(depth + 1);
      write(list.items[i], depth + 1);
    }
    if (!list.items.empty()) line_break(depth);
    out_.add("]");
  }

  void write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString: write_string(key.as_string()); break;
      case Kind::kNone: out_.add("\"null\""); break;
      case Kind::kBool: out_.add(key.as_bool() ? "\"true\"" : "\"false\""); break;
      case Kind::kInt: write_string(integer_text(key.as_integer())); break;
      case Kind::kFloat: write_string(number(key.as_double())); break;
      default: fail(fmt::format("tojson: expected a string as key, got a value of type {}", type_name(key)));
    }
  }

  void write_dict(const Dict& dict, int depth) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const Dict::Entry* a, const Dict::Entry* b) {
        return less(out_.heap(), a->first, b->first);
      });
    }
    out_.add("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i != 0) out_.add(style_.item_separator);
      line_break(depth + 1);
      write_key(entries[i]->first);
      out_.add(style_.key_separator);
      write(entries[i]->second, depth + 1);
    }
    if (!entries.empty()) line_break(depth);
    out_.add("}");
  }

  TextBuilder& out_;
  const JsonStyle& style_;
};

}  // namespace

void append_repr(TextBuilder& out, const Value& value, int depth) {
  out.heap().charge_steps(1);
  if (depth > kMaxNesting) fail("expected values nested less deep to print");
  switch (value.kind()) {
    case Kind::kUndefined: out.add("Undefined"); break;
    case Kind::kNone: out.add("None"); break;
    case Kind::kBool: out.add(value.as_bool() ? "True" : "False"); break;
    case Kind::kInt: out.add(integer_text(value.as_integer())); break;
    case Kind::kFloat: out.add(float_text(value.as_double())); break;
    case Kind::kString:
      if (value.is_markup()) out.add("Markup(");
      append_string_repr(out, value.as_string());
      if (value.is_markup()) out.add(")");
      break;
    case Kind::kDict: append_dict_repr(out, value.as_dict(), depth); break;
    case Kind::kNamespace:
      out.add("<Namespace ");
      append_dict_repr(out, value.as_dict(), depth);
      out.add(">");
      break;
    case Kind::kCallable: out.add(fmt::format("<function {}>", value.as_callable().name)); break;
    case Kind::kLoop: out.add("<loop>"); break;
    default: append_sequence_repr(out, value, depth); break;
  }
}

void append_text(TextBuilder& out, const Value& value) {
  if (value.is_string()) {
    out.add(value.as_string());
  } else if (!value.is_undefined()) {
    append_repr(out, value);
  }
}

std::string to_text(Heap& heap, const Value& value) {
  if (value.is_string()) return value.as_string();
  TextBuilder out(heap);
  append_text(out, value);
  return out.take();
}

void append_json(TextBuilder& out, const Value& value, const JsonStyle& style) {
  JsonWriter(out, style).write(value, 0);
}

Value from_json(Heap& heap, const nlohmann::ordered_json& json, int depth) {
  if (depth > kMaxNesting) fail(fmt::format("expected variables nested at most {} deep", kMaxNesting));
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean: return Value::boolean(json.get<bool>());
    case Type::number_integer: return Value::integer(json.get<std::int64_t>());
    case Type::number_unsigned: return Value::integer(json.get<std::uint64_t>());
    case Type::number_float: return Value::number(json.get<double>());
    case Type::string: return heap.string(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(heap, item, depth + 1));
      return heap.list(std::move(items));
    }
    case Type::object: {
      const Value dict = heap.dict();
      for (const auto& [key, value] : json.items()) {
        dict.as_dict().set(heap, heap.string(key), from_json(heap, value, depth + 1));
      }
      return dict;
    }
    default: return Value();
  }
}

}  // namespace mererun::jinja
