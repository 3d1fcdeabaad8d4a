#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/overrides.h"

namespace mererun {

/// The environment as read once at start-up. Everything below cli/ gets plain options instead.
struct Environment {
  explicit Environment(std::map<std::string, std::string> variables);

  /// Of this process: every MERERUN_* variable, HOME and XDG_DATA_HOME.
  static Environment of_process();

  /// A variable's value, empty when it is not set.
  std::string value(const std::string& name) const;

  /// One line for each variable whose value is ignored and each MERERUN_* name that means nothing.
  std::vector<std::string> warnings() const;

  std::map<std::string, std::string> variables;
  Overrides overrides;  // what the MERERUN_* variables say
};

/// The folder of the bundled models: `share/mere.run/models` of an installation or `models` of a checkout,
/// seen from the program's path; empty when neither exists.
std::filesystem::path bundled_models(const std::filesystem::path& program_path);

}  // namespace mererun
