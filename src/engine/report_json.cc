#include "engine/report_json.h"

#include <nlohmann/json.hpp>
#include <string>

namespace mererun {

using Json = nlohmann::json;

namespace {

Json profile_json(const SpeculationProfile& profile) {
  Json rounds = Json::array();
  for (const SpeculationProfile::Round& r : profile.rounds) {
    rounds.push_back({{"draftDepth", r.draft_depth},
                      {"acceptedDrafts", r.accepted_drafts},
                      {"draftSubmitSeconds", r.draft_submit},
                      {"draftWaitSeconds", r.draft_wait},
                      {"verifySubmitSeconds", r.verify_submit},
                      {"verifyWaitSeconds", r.verify_wait},
                      {"acceptSeconds", r.accept},
                      {"commitSeconds", r.commit}});
  }
  return {{"rounds", rounds},
          {"serialRounds", profile.serial_rounds},
          {"serialSeconds", profile.serial_seconds},
          {"samplingSeconds", profile.sampling_seconds}};
}

}  // namespace

Json acceleration_json(const AccelerationReport& report) {
  Json out{{"route", std::string(name_of(report.route))},
           {"admissionReason", std::string(name_of(report.admission.reason))},
           {"historyMode", std::string(name_of(report.admission.history))}};
  if (report.draft_history_tokens) out["draftHistoryTokens"] = *report.draft_history_tokens;
  if (report.profile) {
    out["profiled"] = true;
    out["speculationProfile"] = profile_json(*report.profile);
  }
  if (!report.admission.drafts) return out;
  const Statistics& s = report.statistics;
  out["draftModel"] = report.draft_model;
  out["blockSize"] = report.admission.width;
  if (report.admission.width_requested) out["blockSizeRequested"] = *report.admission.width_requested;
  out["rounds"] = s.rounds();
  out["serialRounds"] = s.serial_rounds();
  out["probes"] = s.probes();
  out["draftedTokens"] = s.drafted();
  out["acceptedDraftTokens"] = s.accepted();
  if (const auto rate = s.acceptance_rate()) out["acceptanceRate"] = *rate;
  out["depthCounts"] = s.depth_counts();
  out["acceptedCounts"] = s.accepted_counts();
  if (!report.cost_model.empty()) out["costModel"] = report.cost_model;
  return out;
}

Json prefix_json(const PrefixReport& report) {
  Json out{{"outcome", report.outcome}, {"matchedTokens", report.matched_tokens}};
  if (!report.kind.empty()) out["class"] = report.kind;
  if (!report.tier.empty()) out["tier"] = report.tier;
  if (!report.reason.empty()) out["reason"] = report.reason;
  return out;
}

Json timings_json(const GenerateResult& result) {
  const GenerateTimings& t = result.timings;
  Json out{{"prefillSeconds", t.prefill_seconds},
           {"decodeSeconds", t.decode_seconds},
           {"firstTokenSeconds", t.first_token_seconds}};
  const auto evaluated = static_cast<double>(result.prompt_ids.size()) - result.prefix.matched_tokens;
  if (t.prefill_seconds > 0 && evaluated > 0) out["prefillTokensPerSecond"] = evaluated / t.prefill_seconds;
  if (const auto rate = t.decode_rate(static_cast<std::int64_t>(result.ids.size())))
    out["decodeTokensPerSecond"] = *rate;
  return out;
}

Json tool_calls_json(const GenerateResult& result) {
  Json out = Json::array();
  for (const OutputPiece& call : result.tool_calls) {
    Json arguments = Json::parse(call.arguments, nullptr, false);
    out.push_back(
        {{"name", call.name}, {"arguments", arguments.is_discarded() ? Json(call.arguments) : arguments}});
  }
  return out;
}

}  // namespace mererun
