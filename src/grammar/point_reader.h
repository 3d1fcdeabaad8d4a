#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mererun {

/// The characters of a grammar or pattern, read one after the other: what the parsers of both notations have
/// in common. A parser derives from it and says where an error is.
class PointReader {
 protected:
  /// What peek() gives behind the last character.
  static constexpr std::uint32_t kEnd = ~std::uint32_t{0};

  /// `whole` is what the text is called in messages. Errors: kInvalidArgument naming `where` for a text that
  /// is not UTF-8.
  PointReader(std::string_view text, std::string_view where, std::string_view whole);
  virtual ~PointReader() = default;

  [[noreturn]] virtual void fail(std::string_view expected, std::string_view got) const = 0;

  std::uint32_t peek(std::size_t ahead = 0) const {
    return at_ + ahead < points_.size() ? points_[at_ + ahead] : kEnd;
  }
  /// The character here, which is passed. Fails at the end.
  std::uint32_t next();
  /// Passes the character here if it is this one.
  bool take(char c);
  /// The character here as UTF-8; nothing at the end.
  std::string current_text() const;
  /// The number that the decimal digits here write; reading stops as soon as it is above `most`. 0 without
  /// digits.
  std::int64_t take_number(std::int64_t most);
  bool is_at_digit() const { return peek() >= '0' && peek() <= '9'; }
  /// Exactly `count` hexadecimal digits, at most 8. Fails at another character.
  std::uint32_t hex(int count);

  std::vector<std::uint32_t> points_;
  std::size_t at_ = 0;

 private:
  std::string whole_;
};

}  // namespace mererun
