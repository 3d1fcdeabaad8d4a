#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "cli/options.h"
#include "engine/build_info.h"
#include "engine/device_info.h"
#include "engine/environment_check.h"

namespace mererun {

struct Environment;
enum class Family;
struct ResolvedModel;

// Objects that several reports share. A field without a value is absent, never null.

/// What a run does, where that decides whether a variable has an effect.
struct VariableUse {
  DraftingFlags drafting;
  std::optional<Family> family;  // none: the model could not be read
  bool has_prefix_cache = false;
  std::span<const std::string_view> unread;  // variables that the command has no use for
};

/// [{name, value, effect}] of the variables that were set. One that the run does not follow has no effect.
nlohmann::json overrides_json(const Environment& environment, const VariableUse& use);
/// {version, commit, binarySHA256}
nlohmann::json build_json(const BuildInfo& build);
/// {name, driver, memoryBytes, instructionSet?, clockMHz?}
nlohmann::json device_json(const DeviceInfo& device);
/// {competingProcesses [{pid, name, cores}], swapUsedBytesBefore?, swapUsedBytesAfter?}
nlohmann::json environment_json(const EnvironmentReport& report);
/// {target?, mtp?}, each {repository, revision?}, as mererun.json or the model's id states them.
nlohmann::json sources_json(const ResolvedModel& model);

}  // namespace mererun
