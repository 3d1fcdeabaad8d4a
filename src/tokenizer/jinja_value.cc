#include "tokenizer/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_text.h"

namespace mererun::jinja {
namespace {

constexpr std::size_t kIndexFrom = 16;  // a dict with more entries gets a hash index

std::size_t hash_of_text(std::string_view text) { return std::hash<std::string_view>{}(text); }

std::size_t hash_of(Heap& heap, const Value& key, int depth = 0) {
  if (depth > kMaxNesting) fail("expected a dict key nested less deep");
  switch (key.kind()) {
    case Kind::kString: heap.charge_scan(key.as_string().size()); return hash_of_text(key.as_string());
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat: return std::hash<double>{}(key.as_double());  // equal numbers hash alike
    case Kind::kTuple: {
      std::size_t hash = 17;
      for (const Value& item : key.as_sequence().items) hash = hash * 31 + hash_of(heap, item, depth + 1);
      return hash;
    }
    case Kind::kList:
    case Kind::kDict: fail(fmt::format("unhashable type: '{}'", type_name(key)));
    default: return static_cast<std::size_t>(key.kind());
  }
}

bool same_key(const Value& a, const Value& b, int depth = 0) {
  if (a.is_string() || b.is_string()) return a.kind() == b.kind() && a.as_string() == b.as_string();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_integer() == b.as_integer();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  if (a.is_none() || a.is_undefined()) return true;
  if (a.is(Kind::kTuple) && depth < kMaxNesting) {
    const auto& x = a.as_sequence().items;
    const auto& y = b.as_sequence().items;
    if (x.size() != y.size()) return false;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!same_key(x[i], y[i], depth + 1)) return false;
    }
    return true;
  }
  return a.identity() == b.identity();
}

}  // namespace

void fail(std::string message) { throw RenderFailure{std::move(message)}; }

Text::Text(std::string bytes_in, bool is_markup_in, Heap* heap_in)
    : bytes(std::move(bytes_in)), is_markup(is_markup_in), heap_(heap_in) {}

Text::~Text() {
  if (heap_ != nullptr) heap_->release_bytes(bytes.size() + sizeof(Text));
}

Value::Value(Kind kind, Payload payload, std::shared_ptr<const Text> text)
    : kind_(kind), payload_(payload), text_(std::move(text)) {}

Value Value::boolean(bool value) { return {Kind::kBool, {.integer = value ? 1 : 0}}; }
Value Value::integer(Integer value) { return {Kind::kInt, {.integer = value}}; }
Value Value::number(double value) { return {Kind::kFloat, {.number = value}}; }
Value Value::text(std::shared_ptr<const Text> value) { return {Kind::kString, {}, std::move(value)}; }
Value Value::sequence(Kind kind, Sequence* object) { return {kind, {.sequence = object}}; }
Value Value::dict(Dict* object) { return {Kind::kDict, {.dict = object}}; }
Value Value::name_space(Dict* object) { return {Kind::kNamespace, {.dict = object}}; }
Value Value::callable(Callable* object) { return {Kind::kCallable, {.callable = object}}; }
Value Value::loop(LoopState* object) { return {Kind::kLoop, {.loop = object}}; }

Value Value::undefined_variable(std::shared_ptr<const Text> name) {
  return {Kind::kUndefined, {}, std::move(name)};
}

Value Value::undefined_attribute(std::shared_ptr<const Text> name, Kind owner) {
  Value v = undefined_variable(std::move(name));
  v.because_ = UndefinedBecause::kAttribute;
  v.owner_ = owner;
  return v;
}

Value Value::undefined(std::string reason) {
  Value v = undefined_variable(std::make_shared<const Text>(std::move(reason), false, nullptr));
  v.because_ = UndefinedBecause::kReason;
  return v;
}

double Value::as_double() const {
  return kind_ == Kind::kFloat ? payload_.number : static_cast<double>(payload_.integer);
}

std::string Value::undefined_reason() const {
  switch (because_) {
    case UndefinedBecause::kVariable: return fmt::format("'{}' is undefined", text_->bytes);
    case UndefinedBecause::kAttribute:
      return fmt::format("a value of type {} has no attribute or item '{}'", type_name(owner_), text_->bytes);
    case UndefinedBecause::kReason: break;
  }
  return text_->bytes;
}

std::size_t Dict::position_of(const Value& key, std::size_t hash) const {
  if (index_.empty()) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (same_key(entries_[i].first, key)) return i;
    }
    return entries_.size();
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (same_key(entries_[it->second].first, key)) return it->second;
  }
  return entries_.size();
}

const Value* Dict::find(Heap& heap, const Value& key) const {
  const std::size_t at = position_of(key, hash_of(heap, key));
  return at == entries_.size() ? nullptr : &entries_[at].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto matches = [&](const Entry& entry) {
    return entry.first.is_string() && entry.first.as_string() == key;
  };
  if (index_.empty()) {
    for (const Entry& entry : entries_) {
      if (matches(entry)) return &entry.second;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(hash_of_text(key));
  for (auto it = begin; it != end; ++it) {
    if (matches(entries_[it->second])) return &entries_[it->second].second;
  }
  return nullptr;
}

void Dict::set(Heap& heap, const Value& key, Value value) {
  const std::size_t hash = hash_of(heap, key);
  const std::size_t at = position_of(key, hash);
  if (at < entries_.size()) {
    entries_[at].second = std::move(value);
    return;
  }
  heap.charge_bytes(sizeof(Entry) + 64);
  entries_.emplace_back(key, std::move(value));
  if (!index_.empty()) {
    index_.emplace(hash, at);
  } else if (entries_.size() > kIndexFrom) {
    for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(hash_of(heap, entries_[i].first), i);
  }
}

bool Dict::erase(Heap& heap, const Value& key) {
  const std::size_t at = position_of(key, hash_of(heap, key));
  if (at == entries_.size()) return false;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
  index_.clear();
  if (entries_.size() > kIndexFrom) {
    for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(hash_of(heap, entries_[i].first), i);
  }
  return true;
}

void Dict::clear() {
  entries_.clear();
  index_.clear();
}

void Heap::charge_steps(std::uint64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.max_steps) {
    fail(fmt::format("expected at most {} steps of work, got more: the template or its input is too large",
                     limits_.max_steps));
  }
}

void Heap::charge_bytes(std::size_t bytes) {
  if (bytes > limits_.max_value_bytes - std::min(value_bytes_, limits_.max_value_bytes)) {
    fail(fmt::format("expected at most {} bytes of values, got more", limits_.max_value_bytes));
  }
  value_bytes_ += bytes;
}

void Heap::check_string(std::size_t bytes) const {
  if (bytes > limits_.max_string_bytes) {
    fail(fmt::format("expected a string of at most {} bytes, got {}", limits_.max_string_bytes, bytes));
  }
}

Value Heap::string(std::string bytes, bool is_markup) {
  check_string(bytes.size());
  charge_steps(1 + bytes.size() / 256);
  charge_bytes(bytes.size() + sizeof(Text));
  return Value::text(std::make_shared<const Text>(std::move(bytes), is_markup, this));
}

Value Heap::sequence(Kind kind, std::vector<Value> items, std::string label) {
  charge_steps(1 + items.size() / 8);
  charge_bytes(items.size() * sizeof(Value));
  auto object = std::make_unique<Sequence>();
  object->items = std::move(items);
  object->label = std::move(label);
  return Value::sequence(kind, own(std::move(object)));
}

Value Heap::dict() { return Value::dict(own(std::make_unique<Dict>())); }

Value Heap::name_space() { return Value::name_space(own(std::make_unique<Dict>())); }

Value Heap::callable(std::string name, std::function<Value(Interpreter&, const Arguments&)> function) {
  auto object = std::make_unique<Callable>();
  object->name = std::move(name);
  object->function = std::move(function);
  return Value::callable(own(std::move(object)));
}

std::string_view type_name(Kind kind) {
  switch (kind) {
    case Kind::kUndefined: return "undefined";
    case Kind::kNone: return "none";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kRange: return "range";
    case Kind::kView: return "dict view";
    case Kind::kIterator: return "iterator";
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "namespace";
    case Kind::kCallable: return "function";
    case Kind::kLoop: return "loop";
  }
  return "unknown";
}

std::string_view type_name(const Value& value) { return type_name(value.kind()); }

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.as_integer() != 0;
    case Kind::kFloat: return value.as_double() != 0;
    case Kind::kString: return !value.as_string().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView: return !value.as_sequence().items.empty();
    case Kind::kDict: return value.as_dict().size() != 0;
    default: return true;
  }
}

bool equal(Heap& heap, const Value& a, const Value& b, int depth) {
  heap.charge_steps(1);
  if (depth > kMaxNesting) fail("expected values nested less deep to compare");
  if (a.is_number() && b.is_number()) return same_key(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString:
      heap.charge_scan(std::min(a.as_string().size(), b.as_string().size()));
      return a.as_string() == b.as_string();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView: {
      const auto& x = a.as_sequence().items;
      const auto& y = b.as_sequence().items;
      if (x.size() != y.size()) return false;
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (!equal(heap, x[i], y[i], depth + 1)) return false;
      }
      return true;
    }
    case Kind::kDict: {
      if (a.as_dict().size() != b.as_dict().size()) return false;
      for (const auto& [key, value] : a.as_dict().entries()) {
        const Value* other = b.as_dict().find(heap, key);
        if (other == nullptr || !equal(heap, value, *other, depth + 1)) return false;
      }
      return true;
    }
    default: return a.identity() == b.identity();
  }
}

bool less(Heap& heap, const Value& a, const Value& b, int depth) {
  heap.charge_steps(1);
  if (depth > kMaxNesting) fail("expected values nested less deep to compare");
  if (a.is_integral() && b.is_integral()) return a.as_integer() < b.as_integer();
  if (a.is_number() && b.is_number()) return a.as_double() < b.as_double();
  if (a.is_undefined()) fail(a.undefined_reason());
  if (b.is_undefined()) fail(b.undefined_reason());
  if (a.is_string() && b.is_string()) {
    heap.charge_scan(std::min(a.as_string().size(), b.as_string().size()));
    return a.as_string() < b.as_string();  // byte order of UTF-8 is code point order
  }
  if (a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple))) {
    const auto& x = a.as_sequence().items;
    const auto& y = b.as_sequence().items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(heap, x[i], y[i], depth + 1)) return less(heap, x[i], y[i], depth + 1);
    }
    return x.size() < y.size();
  }
  fail(fmt::format("expected two values that have an order, got {} and {}", type_name(a), type_name(b)));
}

std::string integer_text(Integer value) { return fmt::format("{}", value); }

}  // namespace mererun::jinja
