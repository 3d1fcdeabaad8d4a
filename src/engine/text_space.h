#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace mererun {

/// White space as the output's markup and JSON know it.
inline constexpr std::string_view kTextSpace = " \t\r\n";

inline bool is_space(std::string_view text) {
  return text.find_first_not_of(kTextSpace) == std::string_view::npos;
}

/// `text` without white space at its ends.
inline std::string_view trim(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kTextSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kTextSpace) + 1);
}

}  // namespace mererun
