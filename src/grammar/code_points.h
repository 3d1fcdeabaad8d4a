#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mererun {

struct CodePointRange {
  std::uint32_t first;
  std::uint32_t last;
  bool operator==(const CodePointRange&) const = default;
};

/// A set of Unicode scalar values: ascending ranges that do not touch. Surrogates are never in it.
///
/// Thread-safety: thread-compatible.
class CodePointSet {
 public:
  static constexpr std::uint32_t kLast = 0x10FFFF;

  CodePointSet() = default;
  explicit CodePointSet(std::vector<CodePointRange> ranges);
  static CodePointSet all() { return CodePointSet({{0, kLast}}); }
  static CodePointSet one(std::uint32_t code_point) { return CodePointSet({{code_point, code_point}}); }

  bool empty() const { return ranges_.empty(); }
  bool contains(std::uint32_t code_point) const;
  const std::vector<CodePointRange>& ranges() const { return ranges_; }

  CodePointSet united(const CodePointSet& other) const;
  CodePointSet complement() const;
  CodePointSet intersected(const CodePointSet& other) const;
  CodePointSet without(const CodePointSet& other) const { return intersected(other.complement()); }
  bool operator==(const CodePointSet&) const = default;

 private:
  std::vector<CodePointRange> ranges_;
};

/// The bytes of one UTF-8 sequence, each from a range.
struct Utf8Sequence {
  struct Byte {
    std::uint8_t first;
    std::uint8_t last;
    bool operator==(const Byte&) const = default;
  };
  Byte bytes[4];
  int size;
};

/// The UTF-8 encodings of a set as few sequences of byte ranges.
std::vector<Utf8Sequence> utf8_sequences(const CodePointSet& set);

/// The code points of well-formed UTF-8. Errors: kInvalidArgument naming `where`.
std::vector<std::uint32_t> code_points_of(std::string_view text, std::string_view where);

}  // namespace mererun
