#include "cli/mtp_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "engine/report_json.h"

namespace mererun {
namespace {

using Json = nlohmann::json;

/// Characters of a UTF-8 text: bytes that begin one.
std::int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

double ttft_seconds(const MtpMeasurement& m) {
  return m.load_seconds + m.timings.prefill_seconds + m.timings.first_token_seconds;
}

void set(Json& out, const char* name, std::optional<double> value) {
  if (value) out[name] = *value;
}

Json variant_json(const MtpMeasurement& m) {
  Json out{{"name", std::string(name_of(m.variant))},
           {"policy", std::string(policy_of(m.variant))},
           {"expectedMTPActive", m.expects_drafts},
           {"admissionReason", std::string(name_of(m.acceleration.admission.reason))},
           {"promptTokens", m.prompt_tokens},
           {"generatedTokens", m.ids.size()},
           {"elapsedSeconds", m.elapsed_seconds()},
           {"loadSeconds", m.load_seconds},
           {"prefillSeconds", m.timings.prefill_seconds},
           {"decodeSeconds", m.timings.decode_seconds},
           {"firstTokenSeconds", m.timings.first_token_seconds},
           {"ttftSeconds", ttft_seconds(m)},
           {"acceleration", acceleration_json(m.acceleration)},
           {"outputSHA256", m.output_sha256}};
  set(out, "prefillTokensPerSecond", m.prefill_rate());
  set(out, "decodeTokensPerSecond", m.decode_rate());
  set(out, "endToEndTokensPerSecond", m.end_to_end_rate());
  if (m.memory_before) out["residentMemoryBeforeBytes"] = m.memory_before->resident;
  if (m.memory_after) out["residentMemoryAfterBytes"] = m.memory_after->resident;
  // On the CPU the device's memory is the process's.
  if (m.memory_after && m.peak_is_own) out["deviceMemoryPeakBytes"] = m.memory_after->peak;
  return out;
}

std::string number(double value) { return fmt::format("{:g}", value); }

std::string drafting_text(const MtpMeasurement& m) {
  const Statistics& s = m.acceleration.statistics;
  std::string text = fmt::format("  rounds {} serial {} drafted {} accepted {}", s.rounds(),
                                 s.serial_rounds(), s.drafted(), s.accepted());
  if (const auto rate = s.acceptance_rate()) text += fmt::format(" ({:.1f}%)", *rate * 100);
  if (m.acceleration.draft_history_tokens)
    text += fmt::format(" history {}", *m.acceleration.draft_history_tokens);
  return text;
}

std::string parity_text(const MtpScenarioResult& result) {
  if (!result.outputs_equal()) return "  parity no\n";
  if (result.variants.size() < 2) return "  parity not shown: one variant has nothing to be compared with\n";
  if (!result.has_drafted()) return "  parity yes, but no round drafted: no draft was verified\n";
  return "  parity yes\n";
}

std::string variant_text(const MtpScenarioResult& result, const MtpMeasurement& m, std::size_t name_columns,
                         std::size_t route_columns, std::size_t reason_columns) {
  std::string text = fmt::format("  {:<{}}  {:<{}}  {:<{}}  {} tok  prefill {:.3f} s  decode {:.3f} s",
                                 name_of(m.variant), name_columns, name_of(m.acceleration.route),
                                 route_columns, name_of(m.acceleration.admission.reason), reason_columns,
                                 m.ids.size(), m.timings.prefill_seconds, m.timings.decode_seconds);
  const auto rate = m.decode_rate();
  text += rate ? fmt::format("  {:.1f} tok/s", *rate) : std::string("  no decode step timed");
  text += fmt::format("  ttft {:.2f} s  sha256 {}", ttft_seconds(m), m.output_sha256.substr(0, 12));
  if (m.acceleration.admission.drafts) text += drafting_text(m);
  if (const auto ratio = result.decode_speedup(m)) text += fmt::format("  {:.2f}x decode", *ratio);
  if (const auto ratio = result.end_to_end_speedup(m)) text += fmt::format(" {:.2f}x end-to-end", *ratio);
  return text + "\n";
}

}  // namespace

Json mtp_scenario_json(const MtpReportContext& context, const MtpScenario& scenario,
                       const MtpScenarioResult& result) {
  Json out{{"repetition", result.repetition},
           {"warmups", context.options.warmups},
           {"warmupTokens", std::min(context.options.warmup_tokens, scenario.decode_tokens)},
           {"promptCharacters", characters(scenario.prompt)},
           {"promptSHA256", sha256_hex(scenario.prompt)},
           {"requestedDecodeTokens", scenario.decode_tokens},
           {"temperature", scenario.temperature},
           {"contextSize", context.context_size},
           {"decodeSpeedups", Json::object()},
           {"endToEndSpeedups", Json::object()},
           {"outputParity", result.outputs_equal()},
           {"variants", Json::array()}};
  if (scenario.prompt_repeat) out["promptRepeat"] = *scenario.prompt_repeat;
  if (scenario.temperature == 0) out["greedyOutputParity"] = result.outputs_equal();
  for (const MtpMeasurement& m : result.variants) {
    const std::string name(name_of(m.variant));
    set(out["decodeSpeedups"], name.c_str(), result.decode_speedup(m));
    set(out["endToEndSpeedups"], name.c_str(), result.end_to_end_speedup(m));
    out["variants"].push_back(variant_json(m));
  }
  return out;
}

std::string mtp_scenario_text(const MtpReportContext& context, const MtpScenario& scenario,
                              const MtpScenarioResult& result) {
  std::string text = fmt::format(
      "{}  {}  prompt {} tokens  decode {}  temperature {}  context {}  repetition {}/{}{}\n", context.model,
      context.backend, result.variants.empty() ? 0 : result.variants.front().prompt_tokens,
      scenario.decode_tokens, number(scenario.temperature), context.context_size, result.repetition,
      context.options.repetitions, context.is_synthetic ? "  weights synthetic" : "");
  std::size_t name = 0, route = 0, reason = 0;
  for (const MtpMeasurement& m : result.variants) {
    name = std::max(name, name_of(m.variant).size());
    route = std::max(route, name_of(m.acceleration.route).size());
    reason = std::max(reason, name_of(m.acceleration.admission.reason).size());
  }
  for (const MtpMeasurement& m : result.variants) text += variant_text(result, m, name, route, reason);
  return text + parity_text(result);
}

}  // namespace mererun
