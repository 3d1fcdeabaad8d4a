#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/number_range.h"

namespace mererun {

/// A parsed JSON value. Files that use it include <nlohmann/json.hpp> in their .cc.
using Json = nlohmann::json;

/// Bounds of a JSON text from a checkpoint.
struct JsonLimits {
  std::size_t max_bytes = std::size_t{16} << 20;
  int max_depth = 64;  // of nested objects and arrays
};

/// Parses a JSON text whose top level is an object. `where` names it in messages (a file name).
/// Errors: kCorruptData for bad JSON (with line and column), a repeated key in one object, a text longer or
/// deeper than the limits, or another top level.
Json parse_json_object(std::string_view text, std::string_view where, const JsonLimits& limits = {});

/// Reads and parses one file. Errors: kNotFound, kIo, and those of parse_json_object, naming the path.
Json read_json_file(const std::filesystem::path& path, const JsonLimits& limits = {});

/// The same, or no value when the file does not exist.
std::optional<Json> read_optional_json_file(const std::filesystem::path& path, const JsonLimits& limits = {});

/// The `quantization` dictionary of an MLX config.json, else its twin `quantization_config` unless that one
/// describes another scheme (`quant_method` present, such as "fp8"); null when there is none.
/// Errors: kCorruptData if one is no object, or both are there and differ.
const Json* find_quantization(const Json& config, std::string_view where);

/// Getters. `where` names file and object ("config.json: text_config"); messages add the key:
/// "config.json: text_config.hidden_size: expected an integer from 1 to 65536, got -3". A key whose value is
/// null counts as absent. All throw kCorruptData for a missing required key, another type or a value out of
/// range.

/// The member, or null when it is absent or null.
const Json* find_member(const Json& object, std::string_view key);

std::int64_t require_int(const Json& object, std::string_view key, std::int64_t low, std::int64_t high,
                         std::string_view where);
std::optional<std::int64_t> optional_int(const Json& object, std::string_view key, std::int64_t low,
                                         std::int64_t high, std::string_view where);
/// Integers and fractions alike.
double require_number(const Json& object, std::string_view key, const NumberRange& range,
                      std::string_view where);
std::optional<double> optional_number(const Json& object, std::string_view key, const NumberRange& range,
                                      std::string_view where);
std::optional<bool> optional_bool(const Json& object, std::string_view key, std::string_view where);
std::string require_string(const Json& object, std::string_view key, std::string_view where);
std::optional<std::string> optional_string(const Json& object, std::string_view key, std::string_view where);
const Json& require_object(const Json& object, std::string_view key, std::string_view where);
/// Null when absent.
const Json* optional_object(const Json& object, std::string_view key, std::string_view where);
std::optional<std::vector<std::string>> optional_strings(const Json& object, std::string_view key,
                                                         std::string_view where);
/// A list of integers; a single integer counts as a list of one (as `eos_token_id` is written both ways).
std::optional<std::vector<std::int64_t>> optional_ints(const Json& object, std::string_view key,
                                                       std::int64_t low, std::int64_t high,
                                                       std::string_view where);

}  // namespace mererun
