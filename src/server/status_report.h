#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "engine/engine.h"
#include "server/metrics.h"
#include "server/scheduler.h"

namespace mererun {

/// What the reports about a running server are made of.
struct StatusInputs {
  Engine& engine;
  const Scheduler& scheduler;
  const Metrics& metrics;
  std::int64_t rate_limit_per_minute = 0;
  double uptime_seconds = 0;
  int connections = 0;
  std::string overrides_json;
};

/// /runtime/status (docs/server.md lists its members).
nlohmann::ordered_json status_json(const StatusInputs& inputs);

/// What /metrics reports besides the counters.
std::vector<Metrics::Gauge> status_gauges(const StatusInputs& inputs);

}  // namespace mererun
