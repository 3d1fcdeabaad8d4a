#include "cli/option_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "cli/value_parsing.h"

namespace mererun {

namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string last_name(const std::string& names) { return split(names, ',').back(); }

std::string quoted(const std::string& value) { return "\"" + value + "\""; }

[[noreturn]] void refuse(const std::string& name, const std::string& expected, const std::string& value) {
  fail_expected(ErrorCode::kInvalidArgument, name, expected, quoted(value));
}

std::int64_t checked_integer(const std::string& name, const IntegerRange& range, const std::string& value) {
  const auto number = parse_integer(value);
  if (!number || !range.holds(*number)) refuse(name, range.text(), value);
  return *number;
}

double checked_number(const std::string& name, const NumberRange& range, const std::string& value) {
  const auto number = parse_number(value);
  if (!number || !range.holds(*number)) refuse(name, range.text(), value);
  return *number;
}

std::string checked_text(const std::string& name, const std::string& value) {
  if (value.empty()) refuse(name, "a text that is not empty", value);
  return value;
}

std::string checked_choice(const std::string& name, const std::vector<std::string>& allowed,
                           const std::string& value) {
  if (std::ranges::find(allowed, value) == allowed.end()) {
    refuse(name, fmt::format("one of {}", fmt::join(allowed, ", ")), value);
  }
  return value;
}

template <typename T>
void append_item(const std::string& name, bool unique, const T& item, std::vector<T>& items,
                 const std::string& list) {
  if (unique && std::ranges::find(items, item) != items.end()) {
    refuse(name, fmt::format("each value once, but {} is repeated", item), list);
  }
  items.push_back(item);
}

}  // namespace

std::string OptionSpec::long_name() const { return last_name(text.names); }

std::vector<std::string> OptionSpec::all_names() const { return split(text.names, ','); }

void OptionTable::add(OptionText text, bool is_repeatable, std::function<void(const std::string&)> apply) {
  options_.push_back({group_, std::move(text), is_repeatable, std::move(apply), {}});
}

void OptionTable::custom(OptionText text,
                         std::function<void(const std::string& name, const std::string& value)> parse) {
  const std::string name = last_name(text.names);
  add(std::move(text), false,
      [name, parse = std::move(parse)](const std::string& value) { parse(name, value); });
}

void OptionTable::toggle(OptionText text, bool& target) {
  add(std::move(text), true, [&target](const std::string&) { target = true; });
}

void OptionTable::toggle_pair(OptionText yes, OptionText no, std::optional<bool>& target) {
  const std::string both = last_name(yes.names) + " and " + last_name(no.names);
  const auto set = [&target, both](bool value) {
    if (target && *target != value) {
      fail_expected(ErrorCode::kInvalidArgument, both, "at most one of them", "both");
    }
    target = value;
  };
  add(std::move(yes), true, [set](const std::string&) { set(true); });
  add(std::move(no), true, [set](const std::string&) { set(false); });
}

void OptionTable::text(OptionText text, std::string& target) {
  custom(std::move(text), [&target](const std::string& name, const std::string& value) {
    target = checked_text(name, value);
  });
}

void OptionTable::text(OptionText text, std::optional<std::string>& target) {
  custom(std::move(text), [&target](const std::string& name, const std::string& value) {
    target = checked_text(name, value);
  });
}

void OptionTable::texts(OptionText text, std::vector<std::string>& target) {
  const std::string name = last_name(text.names);
  add(std::move(text), true,
      [name, &target](const std::string& value) { target.push_back(checked_text(name, value)); });
}

void OptionTable::choice(OptionText text, std::vector<std::string> allowed,
                         std::function<void(const std::string&)> store) {
  custom(std::move(text),
         [allowed, store = std::move(store)](const std::string& name, const std::string& value) {
           store(checked_choice(name, allowed, value));
         });
  options_.back().choices = std::move(allowed);
}

void OptionTable::choice(OptionText text, std::vector<std::string> allowed, std::string& target) {
  choice(std::move(text), std::move(allowed), [&target](const std::string& value) { target = value; });
}

void OptionTable::choice(OptionText text, std::vector<std::string> allowed,
                         std::optional<std::string>& target) {
  choice(std::move(text), std::move(allowed), [&target](const std::string& value) { target = value; });
}

void OptionTable::integer(OptionText text, IntegerRange range, std::int64_t& target) {
  custom(std::move(text), [range, &target](const std::string& name, const std::string& value) {
    target = checked_integer(name, range, value);
  });
}

void OptionTable::integer(OptionText text, IntegerRange range, std::optional<std::int64_t>& target) {
  custom(std::move(text), [range, &target](const std::string& name, const std::string& value) {
    target = checked_integer(name, range, value);
  });
}

void OptionTable::number(OptionText text, NumberRange range, double& target) {
  custom(std::move(text), [range, &target](const std::string& name, const std::string& value) {
    target = checked_number(name, range, value);
  });
}

void OptionTable::number(OptionText text, NumberRange range, std::optional<double>& target) {
  custom(std::move(text), [range, &target](const std::string& name, const std::string& value) {
    target = checked_number(name, range, value);
  });
}

void OptionTable::integers(OptionText text, IntegerRange range, bool unique,
                           std::vector<std::int64_t>& target) {
  custom(std::move(text), [range, unique, &target](const std::string& name, const std::string& value) {
    target.clear();
    for (const std::string& item : split(value, ',')) {
      append_item(name, unique, checked_integer(name, range, item), target, value);
    }
  });
}

void OptionTable::numbers(OptionText text, NumberRange range, std::vector<double>& target) {
  custom(std::move(text), [range, &target](const std::string& name, const std::string& value) {
    target.clear();
    for (const std::string& item : split(value, ',')) {
      append_item(name, true, checked_number(name, range, item), target, value);
    }
  });
}

void OptionTable::choices(OptionText text, std::vector<std::string> allowed,
                          std::vector<std::string>& target) {
  custom(std::move(text),
         [allowed = std::move(allowed), &target](const std::string& name, const std::string& value) {
           target.clear();
           for (const std::string& item : split(value, ',')) {
             append_item(name, true, checked_choice(name, allowed, item), target, value);
           }
         });
}

}  // namespace mererun
