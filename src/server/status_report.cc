#include "server/status_report.h"

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "engine/backend.h"
#include "engine/device_info.h"
#include "engine/exactness.h"
#include "engine/memory_plan.h"
#include "engine/memory_usage.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

MemoryNeed memory_of(Engine& engine) {
  return memory_needed(engine.model().host(), engine.context_limit(),
                       {.prefill_chunk = engine.prefill_chunk()}, parse_backend(engine.backend_name()));
}

Json prefix_cache_json(Engine& engine) {
  const PrefixCache& cache = engine.prefix_cache();
  const PrefixCacheCounters c = cache.counters();
  Json skipped = Json::object();
  for (const auto& [reason, count] : c.skipped_stores) skipped[reason] = count;
  return {{"enabled", cache.is_enabled()},
          {"entries", cache.entries()},
          {"bytes", cache.bytes()},
          {"budgetBytes", cache.budget_bytes()},
          {"hits", c.hits},
          {"exactHits", c.exact_hits},
          {"misses", c.misses},
          {"storedPrefixes", c.stored_prefixes},
          {"skippedStores", std::move(skipped)},
          {"evictions", c.evictions},
          {"reusedTokens", c.reused_tokens},
          {"storedTokens", c.stored_tokens},
          {"diskHits", c.disk_hits},
          {"diskCorrupt", c.disk_corrupt}};
}

Json speculation_json(const Metrics& metrics) {
  const double rounds = metrics.value("draft_rounds_total");
  const double drafted = metrics.value("drafted_tokens_total");
  const double accepted = metrics.value("accepted_draft_tokens_total");
  Json out{{"rounds", static_cast<std::int64_t>(rounds)},
           {"drafted", static_cast<std::int64_t>(drafted)},
           {"accepted", static_cast<std::int64_t>(accepted)}};
  out["acceptanceRate"] = drafted > 0 ? Json(accepted / drafted) : Json(nullptr);
  out["meanDepth"] = rounds > 0 ? Json(drafted / rounds) : Json(nullptr);
  return out;
}

Json memory_json(Engine& engine, const Scheduler& scheduler) {
  const MemoryNeed need = memory_of(engine);
  Json out{{"weights", need.weights},
           {"state", need.state + need.kv},
           {"cache", engine.prefix_cache().bytes()},
           {"activations", need.arena}};
  out["limit"] =
      scheduler.options().memory_bytes > 0 ? Json(scheduler.options().memory_bytes) : Json(nullptr);
  if (const auto usage = memory_usage()) out["resident"] = usage->resident;
  return out;
}

}  // namespace

Json status_json(const StatusInputs& in) {
  Engine& engine = in.engine;
  const DeviceInfo device = describe_device(engine.model().ops());
  const Exactness exactness = exactness_of(parse_backend(engine.backend_name()));
  const SchedulerOptions& limits = in.scheduler.options();
  return {{"model",
           {{"id", engine.resolved().id},
            {"fingerprint", engine.fingerprint()},
            {"family", name_of(engine.resolved().config.family)},
            {"context", engine.context_limit()},
            {"qualification", engine.qualification()}}},
          {"build", {{"version", project_version()}, {"commit", build_commit()}}},
          {"backend", engine.backend_name()},
          {"device", {{"name", device.name}, {"memoryBytes", device.memory_bytes}}},
          {"exactness",
           {{"levels", exactness.levels},
            {"contractVersion", exactness.contract_version},
            {"backend", exactness.backend}}},
          {"uptimeSeconds", in.uptime_seconds},
          {"connections", in.connections},
          {"admission",
           {{"active", in.scheduler.active()},
            {"queued", in.scheduler.queued()},
            {"limits",
             {{"active", limits.max_active},
              {"queued", limits.max_queued},
              {"ratePerMinute", in.rate_limit_per_minute},
              {"timeoutSeconds", limits.timeout_seconds}}}}},
          {"prefixCache", prefix_cache_json(engine)},
          {"batching",
           {{"enabled", false},
            {"activeRows", 0},
            {"queuedRows", 0},
            {"passes", 0},
            {"rowsTotal", 0},
            {"maxRows", 0}}},
          {"speculation", speculation_json(in.metrics)},
          {"memory", memory_json(engine, in.scheduler)},
          {"overrides", Json::parse(in.overrides_json, nullptr, false)}};
}

std::vector<Metrics::Gauge> status_gauges(const StatusInputs& in) {
  Engine& engine = in.engine;
  const PrefixCacheCounters c = engine.prefix_cache().counters();
  const auto number = [](auto value) { return static_cast<double>(value); };
  std::vector<Metrics::Gauge> out{
      {"build_info",
       label("version", project_version()) + "," + label("commit", build_commit()) + "," +
           label("model", engine.resolved().id) + "," + label("backend", engine.backend_name()),
       1},
      {"active_requests", {}, number(in.scheduler.active())},
      {"queued_requests", {}, number(in.scheduler.queued())},
      {"connections", {}, number(in.connections)},
      {"prefix_cache_bytes", label("tier", "memory"), number(engine.prefix_cache().bytes())},
      {"prefix_cache_hits_total", {}, number(c.hits), true},
      {"prefix_cache_misses_total", {}, number(c.misses), true},
      {"prefix_cache_stores_total", {}, number(c.stored_prefixes), true},
      {"prefix_cache_evictions_total", {}, number(c.evictions), true},
      {"prefix_cache_reused_tokens_total", {}, number(c.reused_tokens), true},
      {"prefix_cache_disk_hits_total", {}, number(c.disk_hits), true},
      {"prefix_cache_disk_corrupt_total", {}, number(c.disk_corrupt), true}};
  if (DiskStore* disk = engine.disk_store())
    out.push_back({"prefix_cache_bytes", label("tier", "disk"), number(disk->statistics().bytes)});
  for (const auto& [reason, count] : c.skipped_stores)
    out.push_back({"prefix_cache_skipped_total", label("reason", reason), number(count), true});
  const MemoryNeed need = memory_of(engine);
  out.push_back({"memory_bytes", label("kind", "weights"), number(need.weights)});
  out.push_back({"memory_bytes", label("kind", "activations"), number(need.arena)});
  if (const auto usage = memory_usage())
    out.push_back({"memory_bytes", label("kind", "resident"), number(usage->resident)});
  return out;
}

}  // namespace mererun
