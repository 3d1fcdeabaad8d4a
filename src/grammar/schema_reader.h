#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "grammar/decimal.h"

namespace mererun {

/// A schema and where it stands in the whole, for messages.
struct SchemaPlace {
  const nlohmann::ordered_json* schema;
  std::string pointer;  // "#/properties/a"
};
/// Schemas that a value satisfies all at once; none: any value.
using SchemaConjunction = std::vector<SchemaPlace>;

enum JsonType : unsigned {
  kJsonNull = 1,
  kJsonBoolean = 2,
  kJsonInteger = 4,
  kJsonFractional = 8,  // numbers that are no integers
  kJsonString = 16,
  kJsonArray = 32,
  kJsonObject = 64,
  kAnyJsonType = 127,
};
/// The bit of a value's type; a float without a fraction is an integer.
unsigned json_type_of(const nlohmann::ordered_json& value);

struct PlacedText {
  std::string text;
  std::string pointer;
};

/// One way to satisfy a conjunction: keywords about single values, collected from all its schemas.
struct ValueRules {
  struct Items {
    std::vector<SchemaPlace> first;
    std::optional<SchemaPlace> others;
  };
  struct Properties {
    std::vector<std::pair<std::string, SchemaPlace>> named;
    std::optional<SchemaPlace> additional;
  };

  unsigned types = kAnyJsonType;
  std::optional<std::vector<const nlohmann::ordered_json*>> values;  // enum, const
  int min_length = 0;
  std::optional<int> max_length = {};
  std::vector<PlacedText> patterns = {};  // formats as well
  std::optional<DecimalBound> lower = {}, upper = {};
  int min_items = 0;
  std::optional<int> max_items = {};
  std::vector<Items> items = {};
  std::vector<Properties> properties = {};
  bool names_properties = false;  // some `properties` was given
  std::vector<std::string> required = {};
  bool is_typed = false;       // some `type` was given
  unsigned implied_types = 0;  // what the keywords are about

  /// What the item at an index must satisfy.
  SchemaConjunction item(std::size_t index) const;
  /// Items that some schema speaks of one by one.
  std::size_t num_first_items() const;
  /// What the property of a name must satisfy.
  SchemaConjunction property(std::string_view name) const;
  /// What a property that no schema names must satisfy.
  SchemaConjunction additional() const;
  /// Names of properties, in the order of the schemas, then the required ones that are not among them.
  std::vector<std::string> property_names() const;
  /// Properties beyond these may be generated: they are allowed in so many words, or nothing is named at all.
  bool has_additional() const;
};

/// Reads schemas into rules: follows references, joins allOf, multiplies out anyOf and oneOf.
///
/// Thread-safety: thread-compatible.
class SchemaReader {
 public:
  static constexpr std::size_t kMaxAlternatives = 256;
  static constexpr int kMaxDepth = 64;
  static constexpr int kMaxNesting = 500;  // of the JSON itself

  /// `root` is what references count from; it outlives the reader. `where` begins every message.
  /// Errors: kInvalidArgument for JSON nested more than kMaxNesting deep.
  SchemaReader(const nlohmann::ordered_json& root, std::string where);

  SchemaConjunction root() const { return {{&root_, "#"}}; }
  /// The ways to satisfy a conjunction; none if nothing does. Errors: kInvalidArgument naming pointer and
  /// keyword for a keyword that is not supported or malformed, and above the bounds.
  std::vector<ValueRules> read(const SchemaConjunction& conjunction);

  /// "<where>: <pointer>".
  std::string place(const std::string& pointer) const { return where_ + ": " + pointer; }

 private:
  void apply(const SchemaPlace& place, std::vector<ValueRules>& alternatives, int depth);
  void apply_branches(const SchemaPlace& place, std::vector<ValueRules>& alternatives, int depth);
  SchemaPlace resolve(const SchemaPlace& reference) const;

  const nlohmann::ordered_json& root_;
  std::string where_;
  std::size_t work_ = 0;
};

}  // namespace mererun
