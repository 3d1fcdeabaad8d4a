#pragma once

#include <string>
#include <string_view>

namespace mererun {

/// Unicode NFC of well-formed UTF-8. Returns `text` itself when it is already normalised (always so for
/// ASCII), else a view of `storage`, which is overwritten.
///
/// Time is O(n log n) for any input: runs of combining marks are sorted, not bubbled into place.
/// Errors: kOutOfMemory. Thread-safe.
/// Source: Unicode Standard Annex 15 (canonical decomposition, ordering, composition); data from libutf8proc.
std::string_view normalize_nfc(std::string_view text, std::string& storage);

}  // namespace mererun
