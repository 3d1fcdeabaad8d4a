#pragma once

#include <string>
#include <string_view>

namespace mererun {

/// `text` without surrounding white space and in lower case (ASCII): how a word of an option is compared.
std::string normalised(std::string_view text);

}  // namespace mererun
