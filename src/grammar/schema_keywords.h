#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "grammar/schema_reader.h"

namespace mererun {

/// A keyword with its value, as met in a schema.
struct SchemaKeyword {
  const nlohmann::ordered_json& schema;  // that it stands in
  const nlohmann::ordered_json& value;
  const std::string& name;
  std::string pointer;  // of the value
  std::string where;    // for messages: the reader's and the pointer
};

/// Narrows rules by a keyword about single values. False for a keyword that is not one of them.
/// Errors: kInvalidArgument for a malformed value.
bool apply_value_keyword(const SchemaKeyword& keyword, ValueRules& rules);

/// True for keywords that say nothing about which values are allowed.
bool is_annotation(const std::string& keyword);

}  // namespace mererun
