#pragma once

#include <optional>
#include <string_view>

#include "decode/history_mode.h"

namespace mererun {

/// What a process or a request says about drafting.
enum class Speculation { kAuto, kOn, kOff };

/// "auto", "on" or "off".
std::string_view name_of(Speculation speculation);

/// Value of MERERUN_Q35_MTP_SPECULATION: white space trimmed, any case, `0 false no off` and `1 true yes on`;
/// empty is kAuto, anything else no value.
std::optional<Speculation> parse_speculation(std::string_view text);

/// What admission has to know of a model; filled from its traits.
struct AdmissionTraits {
  bool default_on = false;    // listed as on when nothing is set: 27B Q4 and the bundled models
  bool is_qualified = false;  // a passing qualification receipt exists for this fingerprint and backend
  bool uses_moe = false;      // experts > 0 and experts per token > 0
  bool is_flash_next = false;
  int min_prompt_tokens = 0;  // prompt threshold
  int default_width = 4;      // W
  int width_cap = 16;
};

/// What the process decided at start-up; the same for all requests.
struct AdmissionProcess {
  Speculation speculation = Speculation::kAuto;         // the command line's, else the variable's
  std::optional<int> min_prompt_tokens = std::nullopt;  // >= 0; replaces the traits' threshold
  std::optional<int> width = std::nullopt;              // >= 2
  StreamHistory stream_history = StreamHistory::kOn;
  bool head_present = false;   // a complete draft head is loaded
  bool backend_exact = false;  // the start-up exactness self-test passed
};

struct AdmissionRequest {
  Speculation speculation = Speculation::kAuto;
  std::optional<int> width = std::nullopt;  // >= 2; goes before the process's
  int num_prompt_tokens = 0;                // N
  std::optional<int> context_limit =
      std::nullopt;  // min(caller, request, max_position_embeddings), where known
  bool has_image = false;
};

enum class AdmissionReason {
  kDefault,
  kExplicit,
  kDisabled,
  kDisabledByRequest,
  kOptIn,
  kContextBelowThreshold,
  kPromptBelowThreshold,
  kNoDraftHead,
  kBackendNotExact,
  kVisionInput,
};

/// As reports print it, such as "prompt-below-threshold".
std::string_view name_of(AdmissionReason reason);

/// The one decision about drafting of a request. Prefill and decode both receive this value.
struct Admission {
  bool drafts = false;
  AdmissionReason reason = AdmissionReason::kDisabled;
  HistoryMode history =
      HistoryMode::kNone;  // may be other than kNone without drafts, for later requests' sake
  int width = 1;           // W of a round; 1 when nothing is drafted
  std::optional<int> width_requested = std::nullopt;  // as asked for, also where it was clamped
  bool asked_for = false;                             // by process or request
};

/// Decides about one request, before its prefill. Pure and total: the first rule that matches decides, in the
/// order disabled, disabled-by-request, opt-in, context-below-threshold, prompt-below-threshold,
/// no-draft-head, backend-not-exact, vision-input, then yes. A request alone cannot lift opt-in. Thread-safe.
Admission admit(const AdmissionTraits& traits, const AdmissionProcess& process,
                const AdmissionRequest& request);

/// True unless every request would be refused as disabled or opt-in; then the head need not be loaded.
bool needs_draft_head(const AdmissionTraits& traits, Speculation process);

/// How a request is decoded.
enum class Route { kMtpSpeculative, kContinuousBatched, kFinalTargetPipelined, kSerial };

/// "mtp-speculative", "continuous-batched", "final-target-pipelined" or "serial".
std::string_view name_of(Route route);

}  // namespace mererun
