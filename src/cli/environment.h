#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mererun {

enum class OverrideEffect { kApplied, kNoEffect, kInvalid };

/// "applied", "no-effect" or "invalid", as reports print it.
std::string_view name_of(OverrideEffect effect);

/// A variable that was set, as reports list it under `overrides`.
struct Override {
  std::string name;
  std::string value;  // "(set)" for a secret
  OverrideEffect effect;

  bool operator==(const Override&) const = default;
};

/// A variable the program knows.
struct VariableInfo {
  std::string_view name;
  std::string_view meaning;  // one line of docs/options.md
  bool has_effect;           // false: accepted for old scripts; no result depends on it
  bool is_secret;
  bool (*is_valid)(const std::string& value);
};

/// The environment as read once at start-up. Everything below cli/ gets plain options instead.
/// A variable that is empty counts as unset; a value of the wrong form as unset too, with a warning.
///
/// Thread-safety: immutable.
class Environment {
 public:
  /// The variables of this process that the program knows, every other MERERUN_* one, HOME and XDG_DATA_HOME.
  static Environment of_process();
  explicit Environment(std::map<std::string, std::string> variables);

  /// Every variable the program knows, in the order of docs/options.md.
  static const std::vector<VariableInfo>& known();

  /// The value if it is set, not empty and valid.
  std::optional<std::string> text(std::string_view name) const;
  /// Trimmed, any case: 1 true yes on, 0 false no off.
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<std::int64_t> integer(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;

  /// Every known variable that is set, in name order.
  std::vector<Override> overrides() const;

  /// One line for each variable whose value is ignored and each MERERUN_* name that means nothing.
  std::vector<std::string> warnings() const;

 private:
  std::map<std::string, std::string> variables_;
};

/// Folders in which model ids are looked up, first to last: MERERUN_MODELS (separated by ':'), the user's
/// data folder, and `models` folders near the program, where a source build and an installation keep the
/// bundled ones.
std::vector<std::string> model_store_folders(const Environment& environment, const std::string& program_path);

}  // namespace mererun
