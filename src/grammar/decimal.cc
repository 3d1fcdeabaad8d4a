#include "grammar/decimal.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"

namespace mererun {
namespace {

constexpr std::size_t kMaxDigits = 40;
constexpr std::size_t kIntegerDigits = 18;
constexpr std::size_t kSignificantDigits = 15;

void normalise(Decimal& decimal) {
  decimal.whole.erase(0, std::min(decimal.whole.find_first_not_of('0'), decimal.whole.size()));
  if (decimal.whole.empty()) decimal.whole = "0";
  while (!decimal.fraction.empty() && decimal.fraction.back() == '0') decimal.fraction.pop_back();
  if (decimal.is_zero()) decimal.is_negative = false;
}

int compare_magnitudes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  if (const int order = a.whole.compare(b.whole); order != 0) return order;
  return a.fraction.compare(b.fraction);  // no trailing zeros: the order of texts is the order of values
}

/// Magnitudes between two bounds, digit by digit. While what is written equals the beginning of a bound, that
/// bound limits the next digit; afterwards it does not.
class MagnitudeRange {
 public:
  MagnitudeRange(ExpressionPool& pool, DecimalBound lower, DecimalBound upper, NumberKind kind)
      : pool_(pool), lower_(std::move(lower)), upper_(std::move(upper)), kind_(kind) {}

  ExpressionId build() {
    const std::size_t least = lower_.value.whole.size(), most = upper_.value.whole.size();
    std::vector<ExpressionId> options;
    for (size_ = least; size_ <= most; ++size_) {
      known_.clear();
      max_fraction_ = 0;
      if (kind_ == NumberKind::kNumber) {
        max_fraction_ = kSignificantDigits - std::min(kSignificantDigits, size_);
        // Not for the sake of an excluded bound: a text of 15 digits is another double than the bound, whose
        // shortest text has more.
        if (!lower_.is_exclusive && !upper_.is_exclusive)
          max_fraction_ =
              std::max({max_fraction_, lower_.value.fraction.size(), upper_.value.fraction.size()});
      }
      options.push_back(digit(0, {size_ == least, size_ == most}));
    }
    return pool_.choice(std::move(options));
  }

 private:
  /// Which bounds still limit what follows.
  struct Tight {
    bool lower;
    bool upper;
  };

  char lower_digit(std::size_t i) const {
    const Decimal& d = lower_.value;
    if (i < size_) return d.whole[i];
    return i - size_ < d.fraction.size() ? d.fraction[i - size_] : '0';
  }
  char upper_digit(std::size_t i) const {
    const Decimal& d = upper_.value;
    if (i < size_) return d.whole[i];
    return i - size_ < d.fraction.size() ? d.fraction[i - size_] : '0';
  }

  /// The number may end after `i` digits.
  bool may_end(std::size_t i, Tight tight) const {
    const std::size_t written = i - size_;
    if (tight.lower) {
      if (lower_.value.fraction.size() > written) return false;  // still below the bound
      if (lower_.is_exclusive) return false;
    }
    if (tight.upper && upper_.value.fraction.size() <= written && upper_.is_exclusive) return false;
    return true;
  }

  /// What may stand after `i` digits (the point does not count).
  ExpressionId digit(std::size_t i, Tight tight) {
    const auto key = std::make_tuple(i, tight.lower, tight.upper);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    const ExpressionId result = i < size_ ? digits_from(i, tight) : rest(i, tight);
    known_.emplace(key, result);
    return result;
  }

  ExpressionId rest(std::size_t i, Tight tight) {
    std::vector<ExpressionId> options;
    if (may_end(i, tight)) options.push_back(pool_.empty());
    if (i < size_ + max_fraction_) {
      const ExpressionId more = digits_from(i, tight);
      options.push_back(i == size_ ? pool_.sequence({pool_.bytes("."), more}) : more);
    }
    return pool_.choice(std::move(options));
  }

  ExpressionId digits_from(std::size_t i, Tight tight) {
    const char first = tight.lower ? lower_digit(i) : (i == 0 && size_ > 1 ? '1' : '0');
    const char last = tight.upper ? upper_digit(i) : '9';
    std::vector<ExpressionId> options;
    for (char low = first; low <= last;) {
      const Tight next{tight.lower && low == first, tight.upper && low == last};
      char high = low;
      const auto is_free = [&](char c) {
        return !(tight.lower && c == first) && !(tight.upper && c == last);
      };
      if (is_free(low))
        while (high < last && is_free(static_cast<char>(high + 1))) ++high;
      const ExpressionId here = pool_.character(
          CodePointSet({{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(high)}}));
      options.push_back(pool_.sequence({here, digit(i + 1, next)}));
      low = static_cast<char>(high + 1);
    }
    return pool_.choice(std::move(options));
  }

  ExpressionPool& pool_;
  DecimalBound lower_, upper_;
  NumberKind kind_;
  std::size_t size_ = 0;  // digits before the point
  std::size_t max_fraction_ = 0;
  std::map<std::tuple<std::size_t, bool, bool>, ExpressionId> known_;
};

ExpressionId magnitudes(ExpressionPool& pool, const DecimalBound& lower, const DecimalBound& upper,
                        NumberKind kind) {
  const int order = compare_magnitudes(lower.value, upper.value);
  if (order > 0 || (order == 0 && (lower.is_exclusive || upper.is_exclusive))) return pool.never();
  return MagnitudeRange(pool, lower, upper, kind).build();
}

}  // namespace

Decimal decimal_of(const nlohmann::ordered_json& number, std::string_view where) {
  if (!number.is_number()) fail_expected(ErrorCode::kInvalidArgument, where, "a number", number.type_name());
  const std::string text = number.is_number_float() ? fmt::format("{}", number.get<double>()) : number.dump();
  Decimal decimal;
  std::size_t at = text[0] == '-' ? 1 : 0;
  decimal.is_negative = at == 1;
  decimal.whole.clear();
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') decimal.whole.push_back(text[at++]);
  if (at < text.size() && text[at] == '.')
    while (++at < text.size() && text[at] >= '0' && text[at] <= '9') decimal.fraction.push_back(text[at]);
  if (at < text.size() && text[at] == 'e') {
    const int exponent = std::stoi(text.substr(at + 1));
    std::string& from = exponent > 0 ? decimal.fraction : decimal.whole;
    std::string& to = exponent > 0 ? decimal.whole : decimal.fraction;
    for (int i = 0; i < std::min(std::abs(exponent), static_cast<int>(2 * kMaxDigits)); ++i) {
      if (exponent > 0) {
        to.push_back(from.empty() ? '0' : from.front());
        if (!from.empty()) from.erase(0, 1);
      } else {
        to.insert(to.begin(), from.empty() ? '0' : from.back());
        if (!from.empty()) from.pop_back();
      }
    }
  } else if (at < text.size()) {
    fail_expected(ErrorCode::kInvalidArgument, where, "a finite number", text);
  }
  normalise(decimal);
  if (decimal.whole.size() + decimal.fraction.size() > kMaxDigits)
    fail_expected(ErrorCode::kInvalidArgument, where, fmt::format("at most {} digits", kMaxDigits), text);
  return decimal;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.is_negative != b.is_negative) return a.is_negative ? -1 : 1;
  const int order = compare_magnitudes(a, b);
  return a.is_negative ? -order : order;
}

ExpressionId number_range(ExpressionPool& pool, const std::optional<DecimalBound>& lower,
                          const std::optional<DecimalBound>& upper, NumberKind kind) {
  const auto negated = [](DecimalBound bound) {
    bound.value.is_negative = !bound.value.is_zero() && !bound.value.is_negative;
    return bound;
  };
  const std::size_t digits = kind == NumberKind::kInteger ? kIntegerDigits : kSignificantDigits;
  const auto largest = [&](const std::optional<DecimalBound>& other) {
    const std::size_t size = other ? std::max(digits, other->value.whole.size() + 1) : digits;
    return DecimalBound{{.is_negative = false, .whole = std::string(size, '9'), .fraction = {}}, false};
  };
  const DecimalBound zero{};
  const DecimalBound low = lower ? *lower : negated(largest(upper));
  const DecimalBound high = upper ? *upper : largest(lower);
  std::vector<ExpressionId> options;
  if (!high.value.is_negative) {
    const bool from_zero = low.value.is_negative;
    options.push_back(magnitudes(pool, from_zero ? zero : low, high, kind));
  }
  if (low.value.is_negative) {
    // Negative integers start at -1: "-0" is an odd way to write 0. Other numbers need -0.5.
    DecimalBound nearest = high.value.is_negative ? negated(high) : zero;
    if (!high.value.is_negative) nearest.is_exclusive = true;
    options.push_back(pool.sequence({pool.bytes("-"), magnitudes(pool, nearest, negated(low), kind)}));
  }
  return pool.choice(std::move(options));
}

}  // namespace mererun
