#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/output_parser.h"

namespace mererun::testing {

/// The tools the parser tests offer: `weather(city: string, days: integer)`, `write(path, content)` and
/// `typed`, with one parameter per kind of schema.
OutputParserOptions with_tools();
OutputParserOptions with_tools_and_reasoning();
OutputParserOptions plain();
OutputParserOptions plain_reasoning();

/// What a client gathers from the pieces. Only the order of pieces and their joined text matter.
struct ParsedOutput {
  std::string reasoning, content;
  std::vector<OutputPiece> calls;
  std::string transcript;  // the pieces in order, neighbours of one text kind joined

  std::string call(std::size_t i) const;  // "name{arguments}", or "none"
};

/// Parses the text fed in the given chunks, cut at these sorted places.
ParsedOutput parse_cut(std::string_view text, const OutputParserOptions& options,
                       const std::vector<std::size_t>& cuts, bool drops_open_call = false);
/// The same in one chunk.
ParsedOutput parse_whole(std::string_view text, const OutputParserOptions& options,
                         bool drops_open_call = false);

}  // namespace mererun::testing
