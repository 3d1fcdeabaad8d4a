#include "cli/report_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/environment.h"
#include "engine/engine.h"

namespace mererun {

using Json = nlohmann::json;

namespace {

/// Whether the run does what the variable asks for, as far as that depends on the run.
bool is_followed(const std::string& name, const Overrides& overrides, const VariableUse& use) {
  if (std::ranges::find(use.unread, name) != use.unread.end()) return false;
  if (name == "MERERUN_Q35_MTP_HEAD_COST_RATIO")
    return use.drafting.mtp_cost == MtpCost::kFixed &&
           use.drafting.mtp_cost_ratio == overrides.head_cost_ratio;
  if (name == "MERERUN_Q35_MTP_STREAM_HISTORY") return use.family != Family::kFlashNext;
  if (name == "MERERUN_Q35_PREFIX_KV_CACHE") return use.has_prefix_cache == overrides.prefix_cache;
  if (name == "MERERUN_PREFIX_CACHE_BYTES")
    return use.has_prefix_cache == (overrides.prefix_cache_bytes > 0U);
  return true;
}

}  // namespace

Json overrides_json(const Environment& environment, const VariableUse& use) {
  Overrides overrides = environment.overrides;
  for (const OverrideReport& report : environment.overrides.reports)
    if (!is_followed(report.name, overrides, use))
      overrides.set_effect(report.name, OverrideEffect::kNoEffect);
  Json out = Json::array();
  for (const OverrideReport& o : overrides.reports)
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
