#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "engine/benchmark_verification.h"
#include "engine/device_info.h"

namespace mererun {

/// What every row of a report was run with.
struct VerificationReportContext {
  std::string model;
  std::string backend;
  DeviceInfo device;
  bool is_synthetic = false;
  const VerificationOracle* oracle = nullptr;  // its experts are reported where they were recorded
};

/// One element of the report's array.
nlohmann::json verification_row_json(const VerificationReportContext& context, const VerificationRow& row);

/// "width=8 trial=1 passes=16 verify_tps=... parity=yes logits=yes", one line.
std::string verification_row_text(const VerificationReportContext& context, const VerificationRow& row);

/// The line above all rows: what the numbers are, and what they are not.
std::string verification_heading(const VerificationReportContext& context);

/// Medians by width and their ratios to width 1, one line each.
std::string verification_summary_text(const std::vector<VerificationRow>& rows);

}  // namespace mererun
