#include "cli/verification_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/report_parts.h"

namespace mererun {
namespace {

using Json = nlohmann::json;

const char* yes_or_no(bool value) { return value ? "yes" : "no"; }

bool has_experts(const VerificationReportContext& context) {
  return context.oracle != nullptr && !context.oracle->experts.empty();
}

std::string rate_text(std::optional<double> rate) { return rate ? fmt::format("{:.1f}", *rate) : "void"; }

}  // namespace

Json verification_row_json(const VerificationReportContext& context, const VerificationRow& row) {
  Json out{{"width", row.width},
           {"trial", row.trial},
           {"verifiedTokens", row.verified_tokens},
           {"verificationPasses", row.passes},
           {"verificationSeconds", row.seconds},
           {"greedyOutputParity", row.greedy_parity},
           {"logitsParity", row.logits_parity},
           {"activeMemoryBytes", row.active_memory_bytes},
           {"cacheMemoryBytes", row.cache_memory_bytes},
           {"backend", context.backend},
           {"device", device_json(context.device)}};
  if (const auto rate = row.rate()) out["verifiedTokensPerSecond"] = *rate;
  if (row.first_mismatch) {
    out["firstMismatch"] = {{"row", row.first_mismatch->row},
                            {"expected", row.first_mismatch->expected},
                            {"got", row.first_mismatch->got}};
  }
  if (!row.certified) out["certified"] = false;
  if (context.is_synthetic) {
    out["weights"] = "synthetic";
    out["model"] = context.model;
  }
  if (has_experts(context))
    out["distinctExpertsPerBlock"] = distinct_experts_per_slice(*context.oracle, row.width);
  return out;
}

std::string verification_row_text(const VerificationReportContext& context, const VerificationRow& row) {
  std::string text = fmt::format("width={} trial={} passes={} verify_tps={} parity={} logits={}", row.width,
                                 row.trial, row.passes, rate_text(row.rate()), yes_or_no(row.greedy_parity),
                                 yes_or_no(row.logits_parity));
  if (!row.certified) text += " certified=no";
  if (context.is_synthetic) text += " weights=synthetic";
  if (has_experts(context))
    text += fmt::format(" experts_per_block={:.1f}", distinct_experts_per_slice(*context.oracle, row.width));
  if (row.first_mismatch) {
    text += fmt::format(" first_mismatch=row:{},expected:{},got:{}", row.first_mismatch->row,
                        row.first_mismatch->expected, row.first_mismatch->got);
  }
  return text + "\n";
}

std::string verification_heading(const VerificationReportContext& context) {
  return fmt::format("{}  {}  verification by the target alone: capacity, not generation speed{}\n",
                     context.model, context.backend, context.is_synthetic ? "  weights synthetic" : "");
}

std::string verification_summary_text(const std::vector<VerificationRow>& rows) {
  std::string text;
  for (const VerificationSummary& entry : summarise(rows)) {
    text += fmt::format("width={} median_verify_tps={}", entry.width, rate_text(entry.median_rate));
    if (entry.ratio_to_one) text += fmt::format(" ratio={:.2f}x", *entry.ratio_to_one);
    text += '\n';
  }
  return text;
}

}  // namespace mererun
