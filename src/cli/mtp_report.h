#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "engine/benchmark_mtp.h"

namespace mererun {

/// What every scenario of a report was run with.
struct MtpReportContext {
  std::string model;
  std::string backend;
  bool is_synthetic = false;
  int context_size = 0;
  MtpBenchmarkOptions options;
};

/// One element of `scenarios`.
nlohmann::json mtp_scenario_json(const MtpReportContext& context, const MtpScenario& scenario,
                                 const MtpScenarioResult& result);

/// The text form: a line for the scenario, one for each variant, one for parity.
std::string mtp_scenario_text(const MtpReportContext& context, const MtpScenario& scenario,
                              const MtpScenarioResult& result);

}  // namespace mererun
