#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/jinja_limits.h"

namespace mererun::jinja {

/// Python's int, up to 128 bits; arithmetic that leaves them is an error. The extra width keeps unsigned
/// 64-bit numbers of JSON exact.
using Integer = __int128;

/// Nested lists and dicts deeper than this are refused: conversion, printing and comparison recurse.
inline constexpr int kMaxNesting = 200;

/// A failure while rendering; the interpreter adds template name and line and throws mererun::Error.
struct RenderFailure {
  std::string message;
};

[[noreturn]] void fail(std::string message);

class Heap;

/// Immutable text. `is_markup` marks what the filters `safe` and `escape` return: adding plain text to it
/// escapes that text, as markupsafe does.
struct Text {
  Text(std::string bytes_in, bool is_markup_in, Heap* heap_in);
  ~Text();
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  std::string bytes;
  bool is_markup;

 private:
  Heap* heap_;  // null for constants of the template, which outlive every rendering
};

/// Base of everything that values refer to. Owned by the Heap until the rendering ends, so that cycles cost
/// nothing.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

struct Sequence;
struct Dict;
struct Callable;
struct LoopState;

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kView,      // dict.keys(), .values(), .items()
  kIterator,  // what map, select and the like return: always true, has no length, can be read once
  kDict,
  kNamespace,
  kCallable,
  kLoop,
};

/// One value of the template language. Cheap to copy: text is shared, containers are referred to.
class Value {
 public:
  Value() = default;  // none
  static Value boolean(bool value);
  static Value integer(Integer value);
  static Value number(double value);
  static Value text(std::shared_ptr<const Text> value);
  static Value sequence(Kind kind, Sequence* object);
  static Value dict(Dict* object);
  static Value name_space(Dict* object);
  static Value callable(Callable* object);
  static Value loop(LoopState* object);
  /// An unknown variable; prints as nothing and fails when used further.
  static Value undefined_variable(std::shared_ptr<const Text> name);
  /// A missing attribute or item of a value of kind `owner`.
  static Value undefined_attribute(std::shared_ptr<const Text> name, Kind owner);
  /// Any other undefined value; `reason` is the message of a later failure.
  static Value undefined(std::string reason);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }  // Python: bool is an int
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_markup() const { return is_string() && text_->is_markup; }
  /// List, tuple, range, view or iterator.
  bool is_sequence_object() const { return kind_ >= Kind::kList && kind_ <= Kind::kIterator; }

  // Each reads the alternative that kind() names.
  bool as_bool() const { return payload_.integer != 0; }
  Integer as_integer() const { return payload_.integer; }  // kInt and kBool
  double as_double() const;                                // any number
  const std::string& as_string() const { return text_->bytes; }
  const std::shared_ptr<const Text>& as_text() const { return text_; }
  Sequence& as_sequence() const { return *payload_.sequence; }
  Dict& as_dict() const { return *payload_.dict; }  // kDict and kNamespace
  Callable& as_callable() const { return *payload_.callable; }
  LoopState& as_loop() const { return *payload_.loop; }
  const void* identity() const { return payload_.sequence; }

  /// Why an undefined value is undefined: "'x' is undefined".
  std::string undefined_reason() const;

 private:
  enum class UndefinedBecause : std::uint8_t { kVariable, kAttribute, kReason };
  union Payload {
    Integer integer;
    double number;
    Sequence* sequence;
    Dict* dict;
    Callable* callable;
    LoopState* loop;
  };

  Value(Kind kind, Payload payload, std::shared_ptr<const Text> text = nullptr);

  Kind kind_ = Kind::kNone;
  UndefinedBecause because_ = UndefinedBecause::kVariable;
  Kind owner_ = Kind::kNone;
  Payload payload_{};
  std::shared_ptr<const Text> text_;
};

struct Sequence final : Object {
  std::vector<Value> items;
  std::string label;         // how a range or view prints
  std::size_t position = 0;  // kIterator: elements already read
  bool is_group = false;     // a pair of groupby: has the attributes grouper and list
};

/// Insertion-ordered dictionary with Python's key rules: 1, 1.0 and true are one key, lists are no keys.
struct Dict final : Object {
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  /// Null when absent. Fails for a key that cannot be hashed.
  const Value* find(Heap& heap, const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Heap& heap, const Value& key, Value value);
  bool erase(Heap& heap, const Value& key);
  void clear();

 private:
  std::size_t position_of(const Value& key, std::size_t hash) const;  // size() when absent
  std::vector<Entry> entries_;
  std::unordered_multimap<std::size_t, std::size_t>
      index_;  // hash to entry, built when there are many entries
};

/// Positional and keyword arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

class Interpreter;

struct Callable final : Object {
  std::string name;
  std::function<Value(Interpreter&, const Arguments&)> function;
};

/// Owns the objects of one rendering and counts what it uses. Thread-safety: one thread only.
class Heap {
 public:
  explicit Heap(const RenderLimits& limits) : limits_(limits) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const RenderLimits& limits() const { return limits_; }
  void charge_steps(std::uint64_t steps);
  void charge_bytes(std::size_t bytes);
  void release_bytes(std::size_t bytes) { value_bytes_ -= bytes; }
  /// Steps for work on every character of a text, and for work at the speed of memory.
  void charge_characters(std::size_t bytes) { charge_steps(1 + bytes / 8); }
  void charge_scan(std::size_t bytes) { charge_steps(1 + bytes / 128); }
  /// Fails when one string would exceed its limit; call before building it.
  void check_string(std::size_t bytes) const;

  Value string(std::string bytes, bool is_markup = false);
  Value list(std::vector<Value> items) { return sequence(Kind::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::kTuple, std::move(items)); }
  Value iterator(std::vector<Value> items) { return sequence(Kind::kIterator, std::move(items)); }
  Value sequence(Kind kind, std::vector<Value> items, std::string label = {});
  Value dict();
  Value name_space();
  Value callable(std::string name, std::function<Value(Interpreter&, const Arguments&)> function);

  template <typename T>
  T* own(std::unique_ptr<T> object) {
    charge_bytes(sizeof(T) + sizeof(void*));
    T* raw = object.get();
    objects_.push_back(std::move(object));
    return raw;
  }

 private:
  const RenderLimits limits_;
  std::uint64_t steps_ = 0;
  std::size_t value_bytes_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

/// Grows one string under the heap's limits.
class TextBuilder {
 public:
  explicit TextBuilder(Heap& heap) : heap_(heap) {}
  ~TextBuilder() { heap_.release_bytes(charged_); }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  void add(std::string_view text) {
    reserve(text.size());
    out_.append(text);
  }
  void add(std::size_t count, char fill) {
    reserve(count);
    out_.append(count, fill);
  }
  std::string take() { return std::move(out_); }
  Heap& heap() { return heap_; }

 private:
  /// A text in the making counts like a finished one: many may be open at once.
  void reserve(std::size_t bytes) {
    heap_.check_string(bytes);
    heap_.check_string(out_.size() + bytes);
    heap_.charge_bytes(bytes);
    charged_ += bytes;
  }

  Heap& heap_;
  std::string out_;
  std::size_t charged_ = 0;
};

/// Python's name of a value's type, for messages.
std::string_view type_name(const Value& value);
std::string_view type_name(Kind kind);

/// Python's truth of a value.
bool truthy(const Value& value);

/// Python's ==.
bool equal(Heap& heap, const Value& a, const Value& b, int depth = 0);

/// Python's a < b; fails for kinds that have no order.
bool less(Heap& heap, const Value& a, const Value& b, int depth = 0);

/// str(value): what {{ value }} prints.
void append_text(TextBuilder& out, const Value& value);
std::string to_text(Heap& heap, const Value& value);

/// repr(value): how a value prints inside a list or dict.
void append_repr(TextBuilder& out, const Value& value, int depth = 0);

/// Decimal digits of a 128-bit integer.
std::string integer_text(Integer value);

}  // namespace mererun::jinja
