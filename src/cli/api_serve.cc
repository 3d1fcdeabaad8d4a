#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/engine_setup.h"
#include "cli/environment.h"
#include "cli/exit_codes.h"
#include "cli/interrupts.h"
#include "cli/json_output.h"
#include "cli/report_parts.h"
#include "cli/text_table.h"
#include "engine/memory_plan.h"
#include "engine/memory_usage.h"
#include "engine/model_inspection.h"
#include "server/server.h"

namespace mererun {
namespace {

using Json = nlohmann::json;

constexpr double kGraceSeconds = 30;
constexpr std::uint64_t kMostCacheBytes = std::uint64_t{8} << 30;
constexpr std::string_view kUnread[] = {"MERERUN_Q35_MTP_PROFILE", "MERERUN_Q35_DEBUG_PROMPT_TOKENS"};

/// Memory left beside what the model takes.
std::uint64_t free_bytes(std::uint64_t taken) {
  const std::uint64_t available = available_memory().value_or(0);
  return available > taken ? available - taken : 0;
}

struct Plan {
  Inspection inspection;
  MemoryNeed memory;  // at the served context
  std::uint64_t cache_bytes = 0;
  std::uint64_t sequence_bytes = 0;  // for active requests; 0: not limited here
};

/// A quarter of what is free once the model is loaded, at most 8 GiB, unless it is named.
Plan make_plan(const ApiServeOptions& options, const ProgramContext& context) {
  const EngineOptions engine = engine_options(options, context);
  Plan plan;
  plan.inspection = inspect_model({.model = engine.model,
                                   .surroundings = engine.surroundings,
                                   .mtp_root = engine.mtp_root,
                                   .backend = engine.backend,
                                   .device = engine.device,
                                   .prefill_chunk = engine.prefill_chunk});
  for (const MemoryNeed& need : plan.inspection.memory)
    if (plan.memory.context == 0 || need.context <= options.context_size) plan.memory = need;
  const std::uint64_t left = free_bytes(plan.memory.weights + plan.memory.arena);
  plan.cache_bytes = options.prefix_cache_bytes ? static_cast<std::uint64_t>(*options.prefix_cache_bytes)
                                                : std::min(left / 4, kMostCacheBytes);
  plan.sequence_bytes = left > plan.cache_bytes ? (left - plan.cache_bytes) / 10 * 9 : 1;
  return plan;
}

std::int64_t served_context(const ApiServeOptions& options, const Plan& plan) {
  const auto& config = plan.inspection.config;
  return config ? std::min<std::int64_t>(options.context_size, config->max_positions) : options.context_size;
}

Json plan_json(const ApiServeOptions& options, const Plan& plan) {
  return {{"model", plan.inspection.id},
          {"path", plan.inspection.folder.string()},
          {"host", options.host},
          {"port", options.port},
          {"needsKey", options.api_key.has_value()},
          {"contextSize", served_context(options, plan)},
          {"limits",
           {{"activeRequests", options.max_active_requests},
            {"queuedRequests", options.max_queued_requests},
            {"ratePerMinute", options.rate_limit_per_minute},
            {"bodyBytes", options.max_body_bytes},
            {"timeoutSeconds", options.request_timeout}}},
          {"prefixCacheBytes", plan.cache_bytes},
          {"memory",
           {{"weightsBytes", plan.memory.weights},
            {"activationsBytes", plan.memory.arena},
            {"sequencesBytes", plan.sequence_bytes}}},
          {"problems", plan.inspection.problems}};
}

std::string plan_text(const ApiServeOptions& options, const Plan& plan) {
  TextTable table("ll");
  table.add({"model", plan.inspection.id});
  table.add({"folder", plan.inspection.folder.string()});
  table.add({"address", url_of(options.host, options.port)});
  table.add({"key", options.api_key ? "asked for" : "none"});
  table.add({"context", fmt::format("{} positions", served_context(options, plan))});
  table.add({"requests", fmt::format("{} at once, {} waiting", options.max_active_requests,
                                     options.max_queued_requests)});
  const auto limit = [](auto number, const char* unit) {
    return number == 0 ? "none" : fmt::format("{} {}", number, unit);
  };
  table.add({"rate limit", limit(options.rate_limit_per_minute, "a minute")});
  table.add({"time limit", limit(options.request_timeout, "s")});
  table.add({"largest body", byte_text(static_cast<std::uint64_t>(options.max_body_bytes))});
  table.add({"weights", byte_text(plan.memory.weights)});
  table.add({"working rows", byte_text(plan.memory.arena)});
  table.add({"sequences", "at most " + byte_text(plan.sequence_bytes)});
  table.add({"prefix cache", "at most " + byte_text(plan.cache_bytes)});
  for (const std::string& problem : plan.inspection.problems) table.add({"problem", problem});
  return table.text();
}

int preflight(const ApiServeOptions& options, const Plan& plan) {
  write_stdout(options.output.json ? json_text(plan_json(options, plan)) : plan_text(options, plan));
  if (plan.inspection.problems.empty()) return kExitDone;
  return plan.inspection.is_unsupported ? kExitUnsupported : kExitCorrupt;
}

ServerOptions server_options(const ApiServeOptions& options, const Plan& plan,
                             const ProgramContext& context) {
  ServerOptions out;
  out.host = options.host;
  out.port = static_cast<int>(options.port);
  out.http.max_body_bytes = static_cast<std::size_t>(options.max_body_bytes);
  out.http.max_bodies_bytes = std::max(out.http.max_bodies_bytes, 2 * out.http.max_body_bytes);
  out.service.api_key = options.api_key;
  out.service.rate_limit_per_minute = options.rate_limit_per_minute;
  out.service.cors_origin = options.cors_origin.value_or("");
  out.service.serial_route = options.drafting.is_serial_route;
  out.service.logs_content = options.log_content;
  VariableUse use{options.drafting, {}, plan.cache_bytes > 0, kUnread};
  if (const auto& config = plan.inspection.config) use.family = config->family;
  out.service.overrides_json = overrides_json(context.environment, use).dump();
  out.scheduler = {.max_active = static_cast<int>(options.max_active_requests),
                   .max_queued = static_cast<int>(options.max_queued_requests),
                   .timeout_seconds = options.request_timeout,
                   .memory_bytes = plan.sequence_bytes};
  return out;
}

void announce(const ApiServeOptions& options, const Server& server, const Plan& plan) {
  if (options.output.json) {
    Json report = plan_json(options, plan);
    report["port"] = server.port();
    write_stdout(json_text(report));
  } else {
    write_stdout(url_of(options.host, server.port()) + "\n");
  }
}

}  // namespace

int run_api_serve(const ApiServeOptions& options, ProgramContext& context) {
  const Plan plan = make_plan(options, context);
  if (options.preflight) return preflight(options, plan);
  EngineOptions engine = engine_options(options, context);
  engine.context_limit = static_cast<int>(std::min<std::int64_t>(options.context_size, INT32_MAX));
  engine.prefix_cache_bytes = static_cast<std::size_t>(plan.cache_bytes);
  engine.prefix_cache_dir = options.prefix_cache_dir.value_or("");
  engine.prefix_cache_disk_bytes = options.prefix_cache_disk_bytes;

  context.interrupts.hold_termination();
  raise_file_limit();
  Server server(server_options(options, plan, context),
                [&] { return load_engine(engine, options, context); });
  const auto is_over = [&] {
    return context.interrupts.requested() || context.interrupts.termination_requested();
  };
  announce(options, server, plan);
  while (!server.is_settled() && !is_over()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (server.is_settled()) {
    server.wait_until_ready();  // throws what loading threw
    log(LogLevel::kInfo, "ready", "model={} port={}", plan.inspection.id, server.port());
  }
  while (!is_over()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  log(LogLevel::kInfo, "shutdown", "grace_s={}", kGraceSeconds);
  server.shut_down(kGraceSeconds);
  return context.interrupts.termination_requested() ? kExitDone : kExitInterrupted;
}

}  // namespace mererun
