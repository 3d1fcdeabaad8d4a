#include "decode/overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "decode/depth_policy.h"
#include "decode/option_text.h"
#include "kernels/cpu/cpu_isa.h"

namespace mererun {

std::string_view name_of(OverrideEffect effect) {
  switch (effect) {
    case OverrideEffect::kApplied: return "applied";
    case OverrideEffect::kNoEffect: return "no-effect";
    case OverrideEffect::kInvalid: return "invalid";
  }
  return "unknown";
}

void Overrides::set_effect(std::string_view name, OverrideEffect effect) {
  for (OverrideReport& report : reports) {
    if (report.name == name && report.effect != OverrideEffect::kInvalid) report.effect = effect;
  }
}

namespace {

/// A whole number in the range and nothing else.
std::optional<std::int64_t> parse_integer(std::string_view text, const IntegerRange& range) {
  const std::string word = normalised(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || !range.holds(value)) return std::nullopt;
  return value;
}

std::optional<bool> parse_switch(std::string_view text) {
  const std::optional<Speculation> spoken = parse_speculation(text);
  if (!spoken || *spoken == Speculation::kAuto) return std::nullopt;
  return *spoken == Speculation::kOn;
}

/// Stores a parsed value and says whether there was one.
template <typename Field, typename Value>
bool store(Field& field, const std::optional<Value>& value) {
  if (value) field = *value;
  return value.has_value();
}

/// `Range` fits the field.
template <const IntegerRange& Range, auto Field>
bool store_integer(Overrides& overrides, std::string_view text) {
  const std::optional<std::int64_t> value = parse_integer(text, Range);
  if (value) (overrides.*Field).emplace(*value);
  return value.has_value();
}

bool store_text(std::optional<std::string>& field, std::string_view text) {
  field = std::string(text);
  return true;
}

bool parse_model_folders(Overrides& overrides, std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(':'), text.size());
    if (end > 0) overrides.model_folders.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}

bool parse_backend(Overrides& overrides, std::string_view text) {
  const std::string word = normalised(text);
  if (word != "auto" && word != "cpu" && word != "cuda") return false;
  overrides.backend = word;
  return true;
}

bool parse_isa(Overrides& overrides, std::string_view text) {
  try {
    overrides.cpu_isa = name_of(parse_cpu_isa(normalised(text)));
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool parse_level(Overrides& overrides, std::string_view text) {
  try {
    overrides.log_level = parse_log_level(normalised(text));
    return true;
  } catch (const Error&) {
    return false;
  }
}

struct Variable {
  std::string_view name;
  /// Reads a non-empty value; false when it is invalid. Null for a variable that nothing here depends on.
  bool (*read)(Overrides& overrides, std::string_view text);
  std::string_view expected = {};
  /// A switch whose off side is all there is: off holds, on has no effect.
  bool is_always_off = false;
  /// What `read` takes, where that is integers.
  const IntegerRange* range = nullptr;
};

/// A variable that is an integer.
template <const IntegerRange& Range, auto Field>
constexpr Variable integer(std::string_view name) {
  return {name, store_integer<Range, Field>, {}, false, &Range};
}

constexpr std::string_view kSwitch = "0 or 1";

constexpr Variable kVariables[] = {
    {"MERERUN_MODELS", parse_model_folders},
    {"MERERUN_API_KEY", [](Overrides& o, std::string_view t) { return store_text(o.api_key, t); }},
    {"MERERUN_BACKEND", parse_backend, "auto, cpu or cuda"},
    integer<option_ranges::kDevice, &Overrides::device>("MERERUN_DEVICE"),
    integer<option_ranges::kThreads, &Overrides::threads>("MERERUN_THREADS"),
    {"MERERUN_CPU_ISA", parse_isa, "auto, portable, avx2, avx512, avx512-vnni or neon"},
    {"MERERUN_LOG", parse_level, "error, warn, info or debug"},
    {"MERERUN_Q35_MTP_SPECULATION",
     [](Overrides& o, std::string_view t) { return store(o.speculation, parse_speculation(t)); },
     "0, false, no, off, 1, true, yes or on"},
    integer<option_ranges::kMinPromptTokens, &Overrides::min_prompt_tokens>(
        "MERERUN_Q35_MTP_MIN_PROMPT_TOKENS"),
    integer<option_ranges::kMtpBlockSize, &Overrides::width>("MERERUN_Q35_MTP_BLOCK_SIZE"),
    {"MERERUN_Q35_MTP_HEAD_COST_RATIO",
     [](Overrides& o, std::string_view t) {
       return store(o.head_cost_ratio, parse_cost_ratio(normalised(t)));
     },
     "a number above 0 and at most 5"},
    {"MERERUN_Q35_MTP_STREAM_HISTORY",
     [](Overrides& o, std::string_view t) {
       o.stream_history = parse_stream_history(t);
       return true;
     }},
    {"MERERUN_Q35_MTP_PIPELINED_FALLBACK", nullptr, kSwitch, true},
    {"MERERUN_Q35_MTP_PROFILE",
     [](Overrides& o, std::string_view t) { return store(o.profile, parse_switch(t)); }, kSwitch},
    {"MERERUN_Q35_EXACT_Q4_EXPERTS", nullptr},
    {"MERERUN_Q35_FUSED_SWITCH_GLU", nullptr, kSwitch, true},
    {"MERERUN_Q35_PREFIX_KV_CACHE",
     [](Overrides& o, std::string_view t) { return store(o.prefix_cache, parse_switch(t)); }, kSwitch},
    integer<option_ranges::kCacheBytes, &Overrides::prefix_cache_bytes>("MERERUN_PREFIX_CACHE_BYTES"),
    integer<option_ranges::kPrefillChunk, &Overrides::prefill_chunk_tokens>(
        "MERERUN_Q35_PREFILL_CHUNK_TOKENS"),
    {"MERERUN_Q35_CONTINUOUS_BATCHING", nullptr, kSwitch, true},
    {"MERERUN_Q35_FUSED_QKV", nullptr},
    {"MERERUN_Q35_SCOPED_COMPILE", nullptr},
    {"MERERUN_Q35_ASYNC_DECODE_BLOCKS", nullptr},
    {"MERERUN_Q35_BATCHED_GPU_SAMPLING", nullptr},
    {"MERERUN_Q38_EXACT_WIDE_Q4", nullptr},
    {"MERERUN_Q38_EXACT_WIDE_Q4_SHAPES", nullptr},
    {"MERERUN_Q38_EXACT_WIDE_DENSE", nullptr},
    {"MERERUN_Q38_EXACT_WIDE_DENSE_SHAPES", nullptr},
    {"MERERUN_Q38_EXACT_WIDE_QSA", nullptr},
    {"MERERUN_Q38_EXACT_WIDE_MOE", nullptr},
    {"MERERUN_Q35_DEBUG_PROMPT_TOKENS",
     [](Overrides& o, std::string_view t) { return store_text(o.debug_prompt_tokens, t); }},
    {"MERERUN_TEST_Q35_TRANSFER",
     [](Overrides& o, std::string_view t) { return store(o.test_transfer, parse_switch(t)); }, kSwitch},
    {"MERERUN_TEST_Q35_TRANSFER_MODEL_ID",
     [](Overrides& o, std::string_view t) { return store_text(o.test_transfer_model_id, t); }},
    {"MERERUN_TEST_Q35_TRANSFER_MODEL_ROOT",
     [](Overrides& o, std::string_view t) { return store_text(o.test_transfer_model_root, t); }},
};

bool has_own_prefix(std::string_view name) {
  return name.starts_with("MERERUN_Q35_") || name.starts_with("MERERUN_Q38_");
}

OverrideEffect read_variable(const Variable& variable, std::string_view value, Overrides& overrides) {
  if (normalised(value).empty()) return OverrideEffect::kNoEffect;
  if (variable.is_always_off) {
    if (const std::optional<bool> on = parse_switch(value))
      return *on ? OverrideEffect::kNoEffect : OverrideEffect::kApplied;
  } else if (variable.read == nullptr) {
    return OverrideEffect::kNoEffect;
  } else if (variable.read(overrides, value)) {
    return OverrideEffect::kApplied;
  }
  overrides.warnings.push_back(
      fmt::format("{}: expected {}, got \"{}\"; it is ignored", variable.name,
                  variable.range != nullptr ? variable.range->text() : variable.expected, value));
  return OverrideEffect::kInvalid;
}

}  // namespace

std::vector<std::string> known_variables() {
  std::vector<std::string> names;
  for (const Variable& variable : kVariables) names.emplace_back(variable.name);
  return names;
}

Overrides parse_overrides(const std::map<std::string, std::string>& variables) {
  Overrides overrides;
  for (const auto& [name, value] : variables) {
    const Variable* known =
        std::find_if(std::begin(kVariables), std::end(kVariables),
                     [&name = name](const Variable& variable) { return variable.name == name; });
    if (known != std::end(kVariables)) {
      const OverrideEffect effect = read_variable(*known, value, overrides);
      overrides.reports.push_back({name, name == "MERERUN_API_KEY" ? "(set)" : value, effect});
    } else if (has_own_prefix(name)) {
      overrides.warnings.push_back(
          fmt::format("{}: expected the name of a variable, got an unknown one", name));
      overrides.reports.push_back({name, value, OverrideEffect::kInvalid});
    }
  }
  return overrides;
}

}  // namespace mererun
