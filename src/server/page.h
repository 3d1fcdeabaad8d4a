#pragma once

#include <string_view>

namespace mererun {

/// The built-in page: one document with its style and script inside, generated from page.html at build time.
std::string_view page_html();

/// What a browser may let the page do: talk to this server and nobody else.
inline constexpr std::string_view kPagePolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src "
    "data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace mererun
