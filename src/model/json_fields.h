#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/number_range.h"

namespace mererun {

/// The keys of one JSON object of a configuration file together with where it stands, so that every read
/// names file, key, expected and got. A thin layer over checkpoint/config_json.h; internal to model/. A key
/// that is absent or null counts as missing. Errors: kCorruptData.
///
/// The object must outlive this view.
class JsonFields {
 public:
  /// `where` names file and object in messages ("config.json: text_config"). `object` must be a JSON object.
  JsonFields(const nlohmann::json& object, std::string where);

  const nlohmann::json& json() const { return *object_; }
  const std::string& where() const { return where_; }
  bool has(std::string_view key) const;

  int integer(std::string_view key, int low, int high) const;
  int integer_or(std::string_view key, int fallback, int low, int high) const;
  double number(std::string_view key, const NumberRange& range) const;
  double number_or(std::string_view key, double fallback, const NumberRange& range) const;
  std::optional<double> maybe_number(std::string_view key, const NumberRange& range) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string text_or(std::string_view key, std::string_view fallback) const;
  std::vector<std::string> texts(std::string_view key) const;
  /// One integer or a list of integers; empty if missing.
  std::vector<int> integers(std::string_view key, int low, int high) const;
  /// No value if missing.
  std::optional<JsonFields> object(std::string_view key) const;

  /// Throws kCorruptData for a value that is well-formed but contradicts another.
  [[noreturn]] void fail(std::string_view key, std::string_view expected) const;

 private:
  const nlohmann::json* object_;
  std::string where_;
};

}  // namespace mererun
