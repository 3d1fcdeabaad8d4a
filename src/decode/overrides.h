#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/number_range.h"
#include "decode/admission.h"
#include "decode/history_mode.h"

namespace mererun {

/// What integers may be, whoever states them: a variable, a flag, a field of a request. Beyond its range a
/// flag and a field are refused and a variable is ignored, with the range in the message. A block size inside
/// it is clamped to the model's cap.
namespace option_ranges {

inline constexpr IntegerRange kDevice{0, 1023};
inline constexpr IntegerRange kThreads{1, 1024};
inline constexpr IntegerRange kMtpBlockSize{.low = 2};
inline constexpr IntegerRange kMinPromptTokens{.low = 0};
inline constexpr IntegerRange kPrefillChunk{64, 8192};
inline constexpr IntegerRange kCacheBytes{0, kAnySize};

}  // namespace option_ranges

enum class OverrideEffect {
  kApplied,   // what the value asks for is what the program does
  kNoEffect,  // accepted, but not what the program does, or something stronger was said
  kInvalid,   // not understood; the default holds
};

/// "applied", "no-effect" or "invalid".
std::string_view name_of(OverrideEffect effect);

struct OverrideReport {
  std::string name;
  std::string value;  // as set; "(set)" for a secret
  OverrideEffect effect = OverrideEffect::kApplied;
};

/// The program's MERERUN_* variables, read once. Members hold what was understood; an absent one was not set,
/// empty or invalid.
///
/// Thread-safety: thread-compatible.
struct Overrides {
  std::vector<std::string> model_folders;  // MERERUN_MODELS, split at ':'
  std::optional<std::string> api_key;
  std::optional<std::string> backend;  // "auto", "cpu" or "cuda"
  std::optional<int> device;           // GPU index
  std::optional<int> threads;          // >= 1
  std::optional<std::string> cpu_isa;  // a name that parse_cpu_isa knows
  std::optional<LogLevel> log_level;

  Speculation speculation = Speculation::kAuto;
  std::optional<int> min_prompt_tokens;  // >= 0
  std::optional<int> width;              // >= 2
  std::optional<double> head_cost_ratio;
  StreamHistory stream_history = StreamHistory::kOn;
  bool profile = false;

  std::optional<bool> prefix_cache;
  std::optional<std::uint64_t> prefix_cache_bytes;
  std::optional<int> prefill_chunk_tokens;         // 64..8192
  std::optional<std::string> debug_prompt_tokens;  // path

  bool test_transfer = false;  // MERERUN_TEST_Q35_TRANSFER
  std::optional<std::string> test_transfer_model_id;
  std::optional<std::string> test_transfer_model_root;

  std::vector<OverrideReport> reports;  // one for each variable that is set, by name
  std::vector<std::string> warnings;    // for the program to log, one for each invalid value

  /// Corrects the effect of a variable once more is known: a flag that beat it, a model it says nothing to
  /// (MERERUN_Q35_MTP_STREAM_HISTORY with Flash-Next). Nothing happens when it isn't set or was invalid.
  void set_effect(std::string_view name, OverrideEffect effect);
};

/// The names of all variables this program knows.
std::vector<std::string> known_variables();

/// Reads the variables this program knows from name -> value; library code never reads the environment
/// itself. An unknown name that starts with MERERUN_Q35_ or MERERUN_Q38_ is reported as invalid, other names
/// are left alone.
Overrides parse_overrides(const std::map<std::string, std::string>& variables);

}  // namespace mererun
