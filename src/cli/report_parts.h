#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/build_info.h"
#include "engine/device_info.h"
#include "engine/environment_check.h"

namespace mererun {

struct Environment;
struct ResolvedModel;

// Objects that several reports share. A field without a value is absent, never null.

/// [{name, value, effect}] of the variables that were set.
nlohmann::json overrides_json(const Environment& environment);
/// {version, commit, binarySHA256}
nlohmann::json build_json(const BuildInfo& build);
/// {name, driver, memoryBytes, instructionSet?, clockMHz?}
nlohmann::json device_json(const DeviceInfo& device);
/// {competingProcesses [{pid, name, cores}], swapUsedBytesBefore?, swapUsedBytesAfter?}
nlohmann::json environment_json(const EnvironmentReport& report);
/// {target?, mtp?}, each {repository, revision?}, as mererun.json or the model's id states them.
nlohmann::json sources_json(const ResolvedModel& model);

}  // namespace mererun
