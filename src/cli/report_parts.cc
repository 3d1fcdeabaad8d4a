#include "cli/report_parts.h"

#include <nlohmann/json.hpp>
#include <string>

#include "cli/environment.h"
#include "engine/engine.h"

namespace mererun {

using Json = nlohmann::json;

Json overrides_json(const Environment& environment) {
  Json out = Json::array();
  for (const OverrideReport& o : environment.overrides.reports)
    out.push_back({{"name", o.name}, {"value", o.value}, {"effect", std::string(name_of(o.effect))}});
  return out;
}

Json build_json(const BuildInfo& build) {
  return {{"version", build.version}, {"commit", build.commit}, {"binarySHA256", build.binary_sha256}};
}

Json device_json(const DeviceInfo& device) {
  Json out{{"name", device.name}, {"driver", device.driver}, {"memoryBytes", device.memory_bytes}};
  if (!device.instruction_set.empty()) out["instructionSet"] = device.instruction_set;
  if (device.clock_mhz) out["clockMHz"] = *device.clock_mhz;
  return out;
}

Json environment_json(const EnvironmentReport& report) {
  Json out{{"competingProcesses", Json::array()}};
  for (const CompetingProcess& p : report.competing)
    out["competingProcesses"].push_back({{"pid", p.pid}, {"name", p.name}, {"cores", p.cores}});
  if (report.swap_before) out["swapUsedBytesBefore"] = *report.swap_before;
  if (report.swap_after) out["swapUsedBytesAfter"] = *report.swap_after;
  return out;
}

Json sources_json(const ResolvedModel& model) {
  const auto source = [](const RepositoryRevision& from) {
    Json out{{"repository", from.repository}};
    if (!from.revision.empty()) out["revision"] = from.revision;
    return out;
  };
  Json out = Json::object();
  if (model.manifest && !model.manifest->target.empty()) {
    out["target"] = source(model.manifest->target);
  } else if (!model.traits.repository.empty()) {
    out["target"] = source({.repository = model.traits.repository, .revision = {}});
  }
  if (model.manifest && !model.manifest->mtp.empty()) out["mtp"] = source(model.manifest->mtp);
  return out;
}

}  // namespace mererun
