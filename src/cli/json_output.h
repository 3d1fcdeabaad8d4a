#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace mererun {

/// A report as text: indented by two, keys sorted, one newline at the end. Bytes that are no UTF-8 become
/// U+FFFD.
std::string json_text(const nlohmann::json& report);

/// Writes to stdout and flushes. Errors: kIo when the text could not be written whole.
void write_stdout(std::string_view text);

}  // namespace mererun
