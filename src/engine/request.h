#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/types.h"
#include "decode/admission.h"
#include "decode/logprobs.h"
#include "decode/sampler.h"
#include "decode/speculation_profile.h"
#include "decode/statistics.h"
#include "decode/stop_rules.h"
#include "decode/token_constraint.h"
#include "engine/output_parser.h"

namespace mererun {

/// A conversation to be rendered by the checkpoint's chat template.
struct ChatPrompt {
  std::shared_ptr<const nlohmann::ordered_json> messages;            // array, OpenAI shape
  std::shared_ptr<const nlohmann::ordered_json> tools;               // array, or null
  std::shared_ptr<const nlohmann::ordered_json> template_arguments;  // object, or null: enable_thinking, ...
};

/// One request to the engine. Exactly one of chat, text and ids is the prompt.
struct GenerateRequest {
  std::optional<ChatPrompt> chat;
  std::optional<std::string> text;  // raw, no template
  std::optional<std::vector<TokenId>> ids;

  SamplingOptions sampling;
  std::vector<std::string> stop;
  std::optional<int> max_tokens;     // absent: what the context leaves
  std::optional<int> context_limit;  // absent: the engine's
  bool ignores_eos = false;          // benchmarks
  bool stops_after_tool_call = false;
  bool plain_output = false;    // all output is content: no reasoning, no calls
  std::optional<int> logprobs;  // top alternatives a token; 0 = chosen only

  Speculation speculation = Speculation::kAuto;
  std::optional<int> width;  // W
  bool full_depth = false;   // benchmarks: always draft D tokens
  bool uses_prefix_cache = true;
  bool profiles = false;      // time every phase of every round
  bool serial_route = false;  // the width-1 oracle: no drafter whatever admission says

  std::unique_ptr<TokenConstraint> constraint;  // on the answer: what the model says after its reasoning
  std::optional<int> reasoning_budget;          // tokens after which reasoning is closed by force
};

struct TokenLogprobs {
  TokenId id = 0;
  RowLogprobs row;
};

struct GenerateTimings {
  double prefill_seconds = 0;
  double decode_seconds = 0;
  double first_token_seconds = 0;  // from the end of prefill to the first emitted token

  /// Tokens a second of `generated` ones. None where no decoding pass was timed: the first token is chosen
  /// from the prompt's logits.
  std::optional<double> decode_rate(std::int64_t generated) const {
    if (generated < 2 || decode_seconds <= 0) return std::nullopt;
    return static_cast<double>(generated) / decode_seconds;
  }
};

struct PrefixReport {
  std::string outcome = "bypassed";  // exact, prefix, miss, bypassed
  int matched_tokens = 0;
  std::string kind;    // class of the snapshot
  std::string tier;    // memory, disk
  std::string reason;  // why not more
};

/// How a request was decoded, for every report.
struct AccelerationReport {
  Route route = Route::kFinalTargetPipelined;
  Admission admission;
  std::optional<int> draft_history_tokens;    // absent where the request does not draft
  std::string draft_model;                    // "qwen-mtp" or "qwen4-exp-mtp"
  std::optional<SpeculationProfile> profile;  // of a profiled run
  std::string cost_model;                     // empty without a policy
  Statistics statistics{0};
};

struct GenerateResult {
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> ids;  // emitted
  std::string reasoning;
  std::string content;
  std::vector<OutputPiece> tool_calls;
  FinishReason finish = FinishReason::kError;
  std::int64_t reasoning_tokens = 0;
  std::uint64_t seed = 0;
  std::vector<TokenLogprobs> logprobs;
  GenerateTimings timings;
  AccelerationReport acceleration;
  PrefixReport prefix;

  /// SHA-256 over reasoning, one NUL byte, content.
  std::string output_sha256() const;
};

}  // namespace mererun
