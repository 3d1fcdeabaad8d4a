#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/number_range.h"

namespace mererun {

/// What the help shows of an option.
struct OptionText {
  std::string names;  // "-p,--prompt": the last one is used in messages
  std::string value;  // "TEXT"; empty for a switch
  std::string help;
  std::string default_text;  // empty when there is none worth showing
};

/// One option of a command: its texts, and how a value given on the command line is checked and stored.
struct OptionSpec {
  std::string group;  // heading of the help
  OptionText text;
  bool is_repeatable = false;
  std::function<void(const std::string& value)> apply;
  std::vector<std::string> choices = {};  // the only values, where they are a list of words

  bool is_switch() const { return text.value.empty(); }
  /// "--prompt"
  std::string long_name() const;
  /// {"-p", "--prompt"}
  std::vector<std::string> all_names() const;
};

/// The options of one command, declared in help order and bound to the fields of an options struct, which
/// must outlive the table. A value of the wrong form or range throws kInvalidArgument, naming the option.
///
/// Thread-safety: thread-compatible.
class OptionTable {
 public:
  /// Starts a group; the options that follow belong to it.
  void group(std::string title) { group_ = std::move(title); }

  void toggle(OptionText text, bool& target);
  /// Two switches that exclude each other, "--stream" and "--no-stream".
  void toggle_pair(OptionText yes, OptionText no, std::optional<bool>& target);

  /// Any text but the empty one.
  void text(OptionText text, std::string& target);
  void text(OptionText text, std::optional<std::string>& target);
  /// May be given several times; each value is kept.
  void texts(OptionText text, std::vector<std::string>& target);
  void choice(OptionText text, std::vector<std::string> allowed, std::string& target);
  void choice(OptionText text, std::vector<std::string> allowed, std::optional<std::string>& target);
  void choice(OptionText text, std::vector<std::string> allowed,
              std::function<void(const std::string& value)> store);

  void integer(OptionText text, IntegerRange range, std::int64_t& target);
  void integer(OptionText text, IntegerRange range, std::optional<std::int64_t>& target);
  void number(OptionText text, NumberRange range, double& target);
  void number(OptionText text, NumberRange range, std::optional<double>& target);

  /// Comma-separated, at least one, no empty items; `unique` refuses repeats as well.
  void integers(OptionText text, IntegerRange range, bool unique, std::vector<std::int64_t>& target);
  void numbers(OptionText text, NumberRange range, std::vector<double>& target);
  void choices(OptionText text, std::vector<std::string> allowed, std::vector<std::string>& target);

  /// A form of its own. `parse` throws or stores; it gets the option's long name and the value.
  void custom(OptionText text, std::function<void(const std::string& name, const std::string& value)> parse);

  const std::vector<OptionSpec>& options() const { return options_; }

 private:
  void add(OptionText text, bool is_repeatable, std::function<void(const std::string&)> apply);

  std::string group_;
  std::vector<OptionSpec> options_;
};

/// What a parse found besides values.
struct ParseOutcome {
  bool wants_help = false;
  std::vector<std::string> given;  // long names of the options that were given
};

/// Reads `arguments` (without the command's own words) by the table: `--name value`, `--name=value`, `-n
/// value`. `where` is the command ("text chat"). Errors: kInvalidArgument for an unknown option, with the
/// nearest name as hint, a stray word, a missing or repeated value, or whatever a value's own check refuses.
/// Values are not looked at when help was asked for.
ParseOutcome parse_arguments(const std::string& where, const OptionTable& table,
                             const std::vector<std::string>& arguments);

}  // namespace mererun
