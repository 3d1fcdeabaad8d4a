#include "checkpoint/config_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/tensor_names.h"

namespace mererun {
namespace {

[[noreturn]] void fail(const std::string& where, std::string_view expected, std::string_view got) {
  fail_expected(ErrorCode::kCorruptData, where, expected, got);
}

/// Builds a Json value from parse events, refusing what nlohmann's own builder lets pass: repeated keys (it
/// keeps the last) and any depth.
class TreeBuilder final : public nlohmann::json_sax<Json> {
 public:
  TreeBuilder(std::string_view where, int max_depth) : where_(where), max_depth_(max_depth) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // JSON text has none
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& key) override {
    if (open_.back()->contains(key))
      fail(std::string(where_), "distinct keys", quote(key) + " twice in one object");
    key_ = key;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    std::string_view what = error.what();  // "[json.exception...] parse error at line ..."
    if (const auto end = what.find("] "); end != what.npos) what.remove_prefix(end + 2);
    fail(std::string(where_), "JSON", what);
  }

 private:
  // Addresses of open containers stay valid: only the innermost one grows.
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (static_cast<int>(open_.size()) == max_depth_) {
      fail(std::string(where_), fmt::format("at most {} levels of nesting", max_depth_), "more");
    }
    open_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view where_;
  int max_depth_;
  Json root_;
  std::vector<Json*> open_;
  std::string key_;
};

std::string show(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  return value.dump();
}

std::string in_key(std::string_view where, std::string_view key) {
  // "config.json: text_config" + "x" reads "config.json: text_config.x"; a bare file name takes ": ".
  return fmt::format("{}{}{}", where, where.find(": ") == where.npos ? ": " : ".", key);
}

const Json& require_member(const Json& object, std::string_view key, std::string_view expected,
                           std::string_view where) {
  const Json* member = find_member(object, key);
  if (member == nullptr) fail(in_key(where, key), expected, "nothing");
  return *member;
}

std::int64_t to_int(const Json& value, std::int64_t low, std::int64_t high, const std::string& where) {
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  if (!fits || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high) {
    fail(where, fmt::format("an integer from {} to {}", low, high), show(value));
  }
  return value.get<std::int64_t>();
}

double to_number(const Json& value, const NumberRange& range, const std::string& where) {
  if (!value.is_number() || !range.holds(value.get<double>())) fail(where, range.text(), show(value));
  return value.get<double>();
}

std::string to_string(const Json& value, const std::string& where) {
  if (!value.is_string()) fail(where, "a text", show(value));
  return value.get<std::string>();
}

}  // namespace

Json parse_json_object(std::string_view text, std::string_view where, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    fail(std::string(where), fmt::format("at most {} bytes", limits.max_bytes),
         fmt::format("{}", text.size()));
  }
  // The JSON library takes a NUL for the end of the text.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos)
    fail(std::string(where), "JSON", fmt::format("a NUL at byte {}", nul));
  TreeBuilder builder(where, limits.max_depth);
  (void)Json::sax_parse(text, &builder);  // every failure throws from the builder
  Json root = builder.take();
  if (!root.is_object()) fail(std::string(where), "an object", show(root));
  return root;
}

Json read_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  return parse_json_object(text, path.string(), limits);
}

std::optional<Json> read_optional_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  std::error_code error;
  // symlink_status: a broken link is a fault to report, not an absent file.
  if (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found) {
    return std::nullopt;
  }
  return read_json_file(path, limits);
}

const Json* find_quantization(const Json& config, std::string_view where) {
  const Json* own = optional_object(config, "quantization", where);
  const Json* twin = optional_object(config, "quantization_config", where);
  if (twin != nullptr && find_member(*twin, "quant_method") != nullptr) twin = nullptr;
  if (own != nullptr && twin != nullptr && *own != *twin) {
    fail(std::string(where), "equal quantization and quantization_config", "two that differ");
  }
  return own != nullptr ? own : twin;
}

const Json* find_member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::int64_t require_int(const Json& object, std::string_view key, std::int64_t low, std::int64_t high,
                         std::string_view where) {
  const std::string expected = fmt::format("an integer from {} to {}", low, high);
  return to_int(require_member(object, key, expected, where), low, high, in_key(where, key));
}

std::optional<std::int64_t> optional_int(const Json& object, std::string_view key, std::int64_t low,
                                         std::int64_t high, std::string_view where) {
  const Json* member = find_member(object, key);
  if (member == nullptr) return std::nullopt;
  return to_int(*member, low, high, in_key(where, key));
}

double require_number(const Json& object, std::string_view key, const NumberRange& range,
                      std::string_view where) {
  return to_number(require_member(object, key, range.text(), where), range, in_key(where, key));
}

std::optional<double> optional_number(const Json& object, std::string_view key, const NumberRange& range,
                                      std::string_view where) {
  const Json* member = find_member(object, key);
  if (member == nullptr) return std::nullopt;
  return to_number(*member, range, in_key(where, key));
}

std::optional<bool> optional_bool(const Json& object, std::string_view key, std::string_view where) {
  const Json* member = find_member(object, key);
  if (member == nullptr) return std::nullopt;
  if (!member->is_boolean()) fail(in_key(where, key), "true or false", show(*member));
  return member->get<bool>();
}

std::string require_string(const Json& object, std::string_view key, std::string_view where) {
  return to_string(require_member(object, key, "a text", where), in_key(where, key));
}

std::optional<std::string> optional_string(const Json& object, std::string_view key, std::string_view where) {
  const Json* member = find_member(object, key);
  if (member == nullptr) return std::nullopt;
  return to_string(*member, in_key(where, key));
}

const Json& require_object(const Json& object, std::string_view key, std::string_view where) {
  const Json& member = require_member(object, key, "an object", where);
  if (!member.is_object()) fail(in_key(where, key), "an object", show(member));
  return member;
}

const Json* optional_object(const Json& object, std::string_view key, std::string_view where) {
  const Json* member = find_member(object, key);
  if (member != nullptr && !member->is_object()) fail(in_key(where, key), "an object", show(*member));
  return member;
}

std::optional<std::vector<std::string>> optional_strings(const Json& object, std::string_view key,
                                                         std::string_view where) {
  const Json* member = find_member(object, key);
  if (member == nullptr) return std::nullopt;
  if (!member->is_array()) fail(in_key(where, key), "a list of texts", show(*member));
  std::vector<std::string> texts;
  for (const Json& item : *member) {
    texts.push_back(to_string(item, fmt::format("{}[{}]", in_key(where, key), texts.size())));
  }
  return texts;
}

std::optional<std::vector<std::int64_t>> optional_ints(const Json& object, std::string_view key,
                                                       std::int64_t low, std::int64_t high,
                                                       std::string_view where) {
  const Json* member = find_member(object, key);
  if (member == nullptr) return std::nullopt;
  if (!member->is_array()) return std::vector{to_int(*member, low, high, in_key(where, key))};
  std::vector<std::int64_t> numbers;
  for (const Json& item : *member) {
    numbers.push_back(to_int(item, low, high, fmt::format("{}[{}]", in_key(where, key), numbers.size())));
  }
  return numbers;
}

}  // namespace mererun
