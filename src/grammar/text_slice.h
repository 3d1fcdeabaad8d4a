#pragma once

#include <cstdint>

namespace mererun {

/// Kinds of characters that grammars often allow in runs; most tokens consist of them.
enum class TextSlice : std::uint8_t {
  kNone,
  kJsonString,        // what stands in a JSON string without an escape
  kMarkupText,        // everything but '<' and line ends
  kJsonMarkupString,  // the characters of kJsonString but '<'
};
inline constexpr int kNumTextSlices = 4;  // kNone included

}  // namespace mererun
