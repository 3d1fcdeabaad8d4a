#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace mererun {

/// Token ids first..last, both included.
struct TokenRange {
  TokenId first = 0;
  TokenId last = 0;
};

/// The ids a draft head may propose, in compact order: the ranges one after the other. Used for proposals
/// only; verification uses the whole vocabulary. A compact matrix of `padded_rows()` rows is made by slicing
/// rows of the output matrix; rows from `rows()` on repeat rows 0, 1, ... and are never chosen.
///
/// Thread-safety: immutable, thread-safe.
class DraftVocabulary {
 public:
  /// Errors: kCorruptData if a range is reversed, overlaps or precedes its predecessor or leaves [0,
  /// vocabulary).
  DraftVocabulary(std::vector<TokenRange> ranges, int vocabulary, std::string_view where);

  /// Ids 0..98,303 and 248,044..248,069 of the 248,320-token vocabulary; no value for any other size.
  static std::optional<DraftVocabulary> standard(int vocabulary);

  const std::vector<TokenRange>& ranges() const { return ranges_; }
  int rows() const { return rows_; }
  int padded_rows() const;  // next multiple of 32

  /// Row of the output matrix that compact row `compact` copies; `compact` in [0, padded_rows()).
  TokenId source_row(int compact) const;
  /// Token of a compact id in [0, rows()). Errors: kInvalidArgument outside.
  TokenId compact_id_to_token(int compact) const;

 private:
  std::vector<TokenRange> ranges_;
  int rows_ = 0;
};

}  // namespace mererun
