#include "cli/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "cli/nearest_name.h"
#include "cli/value_parsing.h"

extern char** environ;

namespace mererun {

namespace {

constexpr std::int64_t kLargest = INT64_MAX;

bool any_text(const std::string&) { return true; }
bool a_boolean(const std::string& value) { return parse_boolean(value).has_value(); }

template <std::int64_t low, std::int64_t high>
bool an_integer(const std::string& value) {
  const auto number = parse_integer(value);
  return number && *number >= low && *number <= high;
}

bool a_backend(const std::string& value) { return value == "auto" || value == "cpu" || value == "cuda"; }
bool a_log_level(const std::string& value) {
  return value == "error" || value == "warn" || value == "info" || value == "debug";
}
bool a_cost_ratio(const std::string& value) {
  const auto number = parse_number(value);
  return number && *number > 0 && *number <= 5;
}

const VariableInfo* find_known(std::string_view name) {
  const auto& known = Environment::known();
  const auto found = std::ranges::find(known, name, &VariableInfo::name);
  return found == known.end() ? nullptr : &*found;
}

}  // namespace

std::string_view name_of(OverrideEffect effect) {
  switch (effect) {
    case OverrideEffect::kApplied: return "applied";
    case OverrideEffect::kNoEffect: return "no-effect";
    case OverrideEffect::kInvalid: return "invalid";
  }
  return "invalid";
}

const std::vector<VariableInfo>& Environment::known() {
  static const std::vector<VariableInfo> kKnown = {
      {"MERERUN_MODELS", "folders of installed models, separated by ':'", true, false, any_text},
      {"MERERUN_API_KEY", "key that HTTP clients must send", true, true, any_text},
      {"MERERUN_BACKEND", "auto, cpu or cuda", true, false, a_backend},
      {"MERERUN_DEVICE", "index of the GPU", true, false, an_integer<0, 1023>},
      {"MERERUN_THREADS", "CPU threads", true, false, an_integer<1, 1024>},
      {"MERERUN_LOG", "error, warn, info or debug", true, false, a_log_level},
      {"MERERUN_Q35_MTP_SPECULATION", "drafting on or off; unset: the model's default", true, false,
       a_boolean},
      {"MERERUN_Q35_MTP_MIN_PROMPT_TOKENS", "shortest prompt that drafts by default", true, false,
       an_integer<0, kLargest>},
      {"MERERUN_Q35_MTP_BLOCK_SIZE", "verify width W, at least 2", true, false, an_integer<2, kLargest>},
      {"MERERUN_Q35_MTP_HEAD_COST_RATIO", "cost of a draft in verifications, 0 < c <= 5", true, false,
       a_cost_ratio},
      {"MERERUN_Q35_MTP_STREAM_HISTORY", "none: no history; 0: retained; else streaming", true, false,
       any_text},
      {"MERERUN_Q35_MTP_PIPELINED_FALLBACK", "0: wait for every undrafted step", true, false, a_boolean},
      {"MERERUN_Q35_MTP_PROFILE", "1: time the parts of each round; such runs are no speed evidence", true,
       false, a_boolean},
      {"MERERUN_Q35_EXACT_Q4_EXPERTS", "the exact expert path is the only one", false, false, any_text},
      {"MERERUN_Q35_FUSED_SWITCH_GLU", "0: gate and up stay separate matrices", true, false, a_boolean},
      {"MERERUN_Q35_PREFIX_KV_CACHE", "prefix cache on or off", true, false, a_boolean},
      {"MERERUN_PREFIX_CACHE_BYTES", "bytes of the prefix cache; 0: off", true, false,
       an_integer<0, kLargest>},
      {"MERERUN_Q35_PREFILL_CHUNK_TOKENS", "tokens a prefill chunk, 64 to 8192", true, false,
       an_integer<64, 8192>},
      {"MERERUN_Q35_CONTINUOUS_BATCHING", "0: requests take turns round by round", true, false, a_boolean},
      {"MERERUN_Q35_FUSED_QKV", "packing; no result depends on it", false, false, any_text},
      {"MERERUN_Q35_SCOPED_COMPILE", "scheduling; no result depends on it", false, false, any_text},
      {"MERERUN_Q35_ASYNC_DECODE_BLOCKS", "scheduling; no result depends on it", false, false, any_text},
      {"MERERUN_Q35_BATCHED_GPU_SAMPLING", "scheduling; no result depends on it", false, false, any_text},
      {"MERERUN_Q38_EXACT_WIDE_Q4", "wide passes are always exact", false, false, any_text},
      {"MERERUN_Q38_EXACT_WIDE_Q4_SHAPES", "wide passes are always exact", false, false, any_text},
      {"MERERUN_Q38_EXACT_WIDE_DENSE", "wide passes are always exact", false, false, any_text},
      {"MERERUN_Q38_EXACT_WIDE_DENSE_SHAPES", "wide passes are always exact", false, false, any_text},
      {"MERERUN_Q38_EXACT_WIDE_QSA", "wide passes are always exact", false, false, any_text},
      {"MERERUN_Q38_EXACT_WIDE_MOE", "wide passes are always exact", false, false, any_text},
      {"MERERUN_Q35_DEBUG_PROMPT_TOKENS", "file that receives the prompt's ids as a JSON array", true, false,
       any_text},
      {"MERERUN_TEST_Q35_TRANSFER", "1: the tests also qualify an installed checkpoint", true, false,
       a_boolean},
      {"MERERUN_TEST_Q35_TRANSFER_MODEL_ID", "id of that checkpoint", true, false, any_text},
      {"MERERUN_TEST_Q35_TRANSFER_MODEL_ROOT", "folder of that checkpoint", true, false, any_text},
  };
  return kKnown;
}

Environment::Environment(std::map<std::string, std::string> variables) : variables_(std::move(variables)) {}

Environment Environment::of_process() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (name.starts_with("MERERUN_") || name == "HOME" || name == "XDG_DATA_HOME") {
      variables.emplace(name, text.substr(equals + 1));
    }
  }
  return Environment(std::move(variables));
}

std::optional<std::string> Environment::text(std::string_view name) const {
  const auto found = variables_.find(std::string(name));
  if (found == variables_.end() || found->second.empty()) return std::nullopt;
  const VariableInfo* info = find_known(name);
  if (info != nullptr && !info->is_valid(found->second)) return std::nullopt;
  return found->second;
}

std::optional<bool> Environment::boolean(std::string_view name) const {
  const auto value = text(name);
  return value ? parse_boolean(*value) : std::nullopt;
}

std::optional<std::int64_t> Environment::integer(std::string_view name) const {
  const auto value = text(name);
  return value ? parse_integer(*value) : std::nullopt;
}

std::optional<double> Environment::number(std::string_view name) const {
  const auto value = text(name);
  return value ? parse_number(*value) : std::nullopt;
}

std::vector<Override> Environment::overrides() const {
  std::vector<Override> overrides;
  for (const auto& [name, value] : variables_) {
    const VariableInfo* info = find_known(name);
    if (info == nullptr || value.empty()) continue;
    const OverrideEffect effect = !info->has_effect        ? OverrideEffect::kNoEffect
                                  : !info->is_valid(value) ? OverrideEffect::kInvalid
                                                           : OverrideEffect::kApplied;
    overrides.push_back({name, info->is_secret ? "(set)" : value, effect});
  }
  return overrides;
}

std::vector<std::string> Environment::warnings() const {
  std::vector<std::string> names;
  for (const VariableInfo& info : known()) names.emplace_back(info.name);
  std::vector<std::string> warnings;
  for (const auto& [name, value] : variables_) {
    const VariableInfo* info = find_known(name);
    if (info != nullptr && !value.empty() && !info->is_valid(value)) {
      warnings.push_back(fmt::format("{}: expected {}, got \"{}\"; ignored", name, info->meaning, value));
    } else if (info == nullptr && name.starts_with("MERERUN_") && name != "MERERUN_GOLDEN_DIR") {
      const std::string nearest = nearest_name(name, names);
      warnings.push_back(fmt::format("{} is no variable of this program{}", name,
                                     nearest.empty() ? "" : "; did you mean " + nearest + "?"));
    }
  }
  return warnings;
}

std::vector<std::string> model_store_folders(const Environment& environment,
                                             const std::string& program_path) {
  std::vector<std::string> folders;
  if (const auto list = environment.text("MERERUN_MODELS")) {
    std::string_view rest = *list;
    while (!rest.empty()) {
      const auto end = rest.find(':');
      if (end != 0) folders.emplace_back(rest.substr(0, end));
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    }
  }
  if (const auto data = environment.text("XDG_DATA_HOME")) {
    folders.push_back(*data + "/mere.run/models");
  } else if (const auto home = environment.text("HOME")) {
    folders.push_back(*home + "/.local/share/mere.run/models");
  }
  // bin/mere.run of an installation, then build/<preset>/bin/mere.run of a checkout.
  const auto bin = std::filesystem::path(program_path).parent_path();
  folders.push_back((bin / "../share/mere.run/models").lexically_normal().string());
  folders.push_back((bin / "../../../models").lexically_normal().string());
  return folders;
}

}  // namespace mererun
