#include "cli/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "cli/nearest_name.h"

extern char** environ;

namespace mererun {

namespace {

// Read by the tests, not by the program.
constexpr std::string_view kTestVariables[] = {"MERERUN_GOLDEN_DIR", "MERERUN_TEST_BACKEND"};

}  // namespace

Environment::Environment(std::map<std::string, std::string> all)
    : variables(std::move(all)), overrides(parse_overrides(variables)) {}

Environment Environment::of_process() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (name.starts_with("MERERUN_") || name == "HOME" || name == "XDG_DATA_HOME") {
      variables.emplace(name, text.substr(equals + 1));
    }
  }
  return Environment(std::move(variables));
}

std::string Environment::value(const std::string& name) const {
  const auto found = variables.find(name);
  return found == variables.end() ? std::string() : found->second;
}

std::vector<std::string> Environment::warnings() const {
  std::vector<std::string> warnings = overrides.warnings;
  const std::vector<std::string> known = known_variables();
  for (const auto& [name, ignored] : variables) {
    const bool is_known =
        std::ranges::find(known, name) != known.end() ||
        std::ranges::find(overrides.reports, name, &OverrideReport::name) != overrides.reports.end();
    if (is_known || !name.starts_with("MERERUN_") ||
        std::ranges::find(kTestVariables, name) != std::end(kTestVariables))
      continue;
    const std::string nearest = nearest_name(name, known);
    warnings.push_back(fmt::format("{}: expected the name of a variable, got an unknown one{}", name,
                                   nearest.empty() ? "" : "; did you mean " + nearest + "?"));
  }
  return warnings;
}

std::filesystem::path bundled_models(const std::filesystem::path& program_path) {
  const auto bin = program_path.parent_path();
  // bin/mere.run of an installation, then build/<preset>/bin/mere.run of a checkout.
  for (const char* folder : {"../share/mere.run/models", "../../../models"}) {
    std::error_code error;
    const auto path = (bin / folder).lexically_normal();
    if (std::filesystem::is_directory(path, error)) return path;
  }
  return {};
}

}  // namespace mererun
