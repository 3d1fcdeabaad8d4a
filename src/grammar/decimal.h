#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "grammar/expression.h"

namespace mererun {

/// A decimal number as written out: no exponent, no superfluous zeros.
struct Decimal {
  bool is_negative = false;
  std::string whole = "0";  // no leading zeros but "0" itself
  std::string fraction;     // no trailing zeros

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

/// The shortest decimal that reads back as the JSON number. Errors: kInvalidArgument, naming `where`, for
/// what is no number or has more than 40 digits when written out.
Decimal decimal_of(const nlohmann::ordered_json& number, std::string_view where);

/// Less than 0, 0 or more than 0, as a is less than, equal to or more than b.
int compare(const Decimal& a, const Decimal& b);

struct DecimalBound {
  Decimal value;
  bool is_exclusive = false;
};

enum class NumberKind { kInteger, kNumber };

/// The JSON numbers within bounds, at least one of which is given, written without exponents. Integers are
/// exact; where a side has no bound they have at most 18 digits. Other numbers have at most 15 significant
/// digits, so that two different texts are two different doubles, or as many as the bounds have if none is
/// exclusive.
ExpressionId number_range(ExpressionPool& pool, const std::optional<DecimalBound>& lower,
                          const std::optional<DecimalBound>& upper, NumberKind kind);

}  // namespace mererun
