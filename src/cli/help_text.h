#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/option_table.h"

namespace mererun {

/// Columns of every help text; the stored copies of the tests depend on it, the terminal's width does not
/// matter.
inline constexpr std::size_t kHelpColumns = 100;

/// Breaks `text` at spaces into lines of at most `columns`; each line but the first starts with `indent`
/// spaces. `first_column` is where the first line starts.
std::string wrapped(std::string_view text, std::size_t first_column, std::size_t indent, std::size_t columns);

/// A two-column list: names at two spaces, texts at `text_column`, wrapped.
struct HelpRow {
  std::string name;
  std::string text;
};
std::string help_rows(const std::vector<HelpRow>& rows, std::size_t text_column);

/// The options of a command by group, one row an option.
std::string help_options(const OptionTable& table);

}  // namespace mererun
