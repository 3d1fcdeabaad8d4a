#include "decode/admission.h"

#include <string>

#include "decode/depth_policy.h"
#include "decode/option_text.h"

namespace mererun {

std::string_view name_of(Speculation speculation) {
  switch (speculation) {
    case Speculation::kAuto: return "auto";
    case Speculation::kOn: return "on";
    case Speculation::kOff: return "off";
  }
  return "unknown";
}

std::optional<Speculation> parse_speculation(std::string_view text) {
  const std::string word = normalised(text);
  if (word.empty()) return Speculation::kAuto;
  if (word == "0" || word == "false" || word == "no" || word == "off") return Speculation::kOff;
  if (word == "1" || word == "true" || word == "yes" || word == "on") return Speculation::kOn;
  return std::nullopt;
}

std::string_view name_of(AdmissionReason reason) {
  switch (reason) {
    case AdmissionReason::kDefault: return "default";
    case AdmissionReason::kExplicit: return "explicit";
    case AdmissionReason::kDisabled: return "disabled";
    case AdmissionReason::kDisabledByRequest: return "disabled-by-request";
    case AdmissionReason::kOptIn: return "opt-in";
    case AdmissionReason::kContextBelowThreshold: return "context-below-threshold";
    case AdmissionReason::kPromptBelowThreshold: return "prompt-below-threshold";
    case AdmissionReason::kNoDraftHead: return "no-draft-head";
    case AdmissionReason::kBackendNotExact: return "backend-not-exact";
    case AdmissionReason::kVisionInput: return "vision-input";
  }
  return "unknown";
}

std::string_view name_of(Route route) {
  switch (route) {
    case Route::kMtpSpeculative: return "mtp-speculative";
    case Route::kContinuousBatched: return "continuous-batched";
    case Route::kFinalTargetPipelined: return "final-target-pipelined";
    case Route::kSerial: return "serial";
  }
  return "unknown";
}

namespace {

bool is_on_by_default(const AdmissionTraits& traits) {
  return traits.default_on || traits.uses_moe || traits.is_qualified;
}

bool is_opt_in(const AdmissionTraits& traits, Speculation process) {
  return !is_on_by_default(traits) && process != Speculation::kOn;
}

AdmissionReason first_reason(const AdmissionTraits& traits, const AdmissionProcess& process,
                             const AdmissionRequest& request, bool asked_for) {
  const int threshold = process.min_prompt_tokens.value_or(traits.min_prompt_tokens);
  if (process.speculation == Speculation::kOff) return AdmissionReason::kDisabled;
  if (request.speculation == Speculation::kOff) return AdmissionReason::kDisabledByRequest;
  if (is_opt_in(traits, process.speculation)) return AdmissionReason::kOptIn;
  if (request.context_limit && *request.context_limit < threshold)
    return AdmissionReason::kContextBelowThreshold;
  if (!asked_for && request.num_prompt_tokens < threshold) return AdmissionReason::kPromptBelowThreshold;
  if (!process.head_present) return AdmissionReason::kNoDraftHead;
  if (!process.backend_exact) return AdmissionReason::kBackendNotExact;
  if (request.has_image) return AdmissionReason::kVisionInput;
  return asked_for ? AdmissionReason::kExplicit : AdmissionReason::kDefault;
}

}  // namespace

Admission admit(const AdmissionTraits& traits, const AdmissionProcess& process,
                const AdmissionRequest& request) {
  Admission admission;
  admission.asked_for = process.speculation == Speculation::kOn || request.speculation == Speculation::kOn;
  admission.reason = first_reason(traits, process, request, admission.asked_for);
  admission.drafts =
      admission.reason == AdmissionReason::kDefault || admission.reason == AdmissionReason::kExplicit;
  // Each excluding rule on its own, not only the first: a request that opts out still prepares its history
  // where a later one could draft.
  admission.history = choose_history_mode({
      .is_excluded = process.speculation == Speculation::kOff || is_opt_in(traits, process.speculation) ||
                     !process.head_present || !process.backend_exact || request.has_image,
      .is_flash_next = traits.is_flash_next,
      .is_dense = !traits.uses_moe,
      .stream_history = process.stream_history,
      .num_prompt_tokens = request.num_prompt_tokens,
  });
  if (admission.drafts) {
    const RoundWidth chosen =
        resolve_width(request.width ? request.width : process.width, traits.default_width, traits.width_cap);
    admission.width = chosen.width;
    admission.width_requested = chosen.requested;
  }
  return admission;
}

bool needs_draft_head(const AdmissionTraits& traits, Speculation process) {
  return process != Speculation::kOff && !is_opt_in(traits, process);
}

}  // namespace mererun
