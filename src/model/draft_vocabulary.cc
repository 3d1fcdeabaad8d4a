#include "model/draft_vocabulary.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace mererun {

DraftVocabulary::DraftVocabulary(std::vector<TokenRange> ranges, int vocabulary, std::string_view where)
    : ranges_(std::move(ranges)) {
  TokenId next = 0;
  for (const TokenRange& range : ranges_) {
    if (range.first < next || range.last < range.first || range.last >= vocabulary) {
      fail_expected(ErrorCode::kCorruptData, where,
                    fmt::format("ascending, disjoint ranges of ids below {}", vocabulary),
                    fmt::format("[{}, {}]", range.first, range.last));
    }
    rows_ += range.last - range.first + 1;
    next = range.last + 1;
  }
  if (rows_ == 0) fail_expected(ErrorCode::kCorruptData, where, "at least one range of ids", "none");
}

std::optional<DraftVocabulary> DraftVocabulary::standard(int vocabulary) {
  if (vocabulary != 248320) return std::nullopt;
  return DraftVocabulary({{0, 98303}, {248044, 248069}}, vocabulary, "draft vocabulary");
}

int DraftVocabulary::padded_rows() const {
  constexpr int kRowMultiple = 32;
  return (rows_ + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
}

TokenId DraftVocabulary::source_row(int compact) const { return compact_id_to_token(compact % rows_); }

TokenId DraftVocabulary::compact_id_to_token(int compact) const {
  if (compact < 0 || compact >= rows_) {
    fail_expected(ErrorCode::kInvalidArgument, "compact id", fmt::format("0 to {}", rows_ - 1),
                  fmt::format("{}", compact));
  }
  for (const TokenRange& range : ranges_) {
    const int length = range.last - range.first + 1;
    if (compact < length) return range.first + compact;
    compact -= length;
  }
  check_failed("unreachable", "draft vocabulary ranges");
}

}  // namespace mererun
