#include "cli/help_text.h"

namespace mererun {

std::string wrapped(std::string_view text, std::size_t first_column, std::size_t indent,
                    std::size_t columns) {
  std::string result;
  std::size_t column = first_column;
  bool is_line_start = true;
  while (!text.empty()) {
    const auto end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (!is_line_start && column + 1 + word.size() > columns) {
      result.append("\n").append(indent, ' ');
      column = indent;
      is_line_start = true;
    }
    if (!is_line_start) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    is_line_start = false;
  }
  return result;
}

std::string help_rows(const std::vector<HelpRow>& rows, std::size_t text_column) {
  std::string result;
  for (const HelpRow& row : rows) {
    std::string line = "  " + row.name;
    if (line.size() + 2 > text_column) {
      result += line + "\n";
      line.clear();
    }
    line.resize(text_column, ' ');
    result += line + wrapped(row.text, text_column, text_column, kHelpColumns) + "\n";
  }
  return result;
}

std::string help_options(const OptionTable& table) {
  constexpr std::size_t kTextColumn = 34;
  std::string result, group;
  for (const OptionSpec& option : table.options()) {
    if (option.group != group) {
      group = option.group;
      result += "\n" + group + "\n";
    }
    std::string name;
    for (const std::string& part : option.all_names()) name += (name.empty() ? "" : ", ") + part;
    if (!option.is_switch()) name += " " + option.text.value;
    std::string text = option.text.help;
    if (option.is_repeatable && !option.is_switch()) text += "; may be repeated";
    if (!option.text.default_text.empty()) text += " (default: " + option.text.default_text + ")";
    result += help_rows({{name, text}}, kTextColumn);
  }
  return result;
}

}  // namespace mererun
