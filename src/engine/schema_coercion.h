#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include <nlohmann/json_fwd.hpp>

namespace mererun {

/// The request's tools by name, and the typing of their arguments.
///
/// A tool is `{"type": "function", "function": {"name", "parameters"}}`, or the inner object alone, or the
/// same with `input_schema`. Entries of another shape are passed over: whoever admits the request judges
/// them.
/// Thread-safety: immutable after construction.
class ToolSchemas {
 public:
  explicit ToolSchemas(std::shared_ptr<const nlohmann::ordered_json> tools);

  /// The JSON text of an argument that the model wrote as plain text.
  ///
  /// The types that the key's schema allows (`type`, a list of types, `anyOf`, `oneOf`, `allOf`, local
  /// `$ref`, `enum`, `const`, `nullable`) are tried from the narrowest: null, integer, number, boolean,
  /// object or array, string. What fits none is the text as a string, so nothing is lost; so is text
  /// without a schema, but for `null`. A field of type string alone keeps its text whatever it says. An
  /// empty text is null where null is allowed and string is not.
  std::string argument_json(std::string_view tool, std::string_view key, std::string_view text) const;

 private:
  std::shared_ptr<const nlohmann::ordered_json> tools_;
  std::unordered_map<std::string, const nlohmann::ordered_json*> parameters_;
};

}  // namespace mererun
