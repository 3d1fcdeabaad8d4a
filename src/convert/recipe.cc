#include "convert/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"

namespace mererun {
namespace {

struct Mix {
  int low;
  int high;
};

/// In the order of the help.
constexpr std::array<std::string_view, 10> kNames = {"q4",        "q3-activation", "mixed",     "mixed-2-6",
                                                     "mixed-3-4", "mixed-3-5",     "mixed-3-6", "mixed-3-8",
                                                     "mixed-4-6", "mixed-4-8"};

/// The bits that a mixed profile's name says.
Mix mix_of(std::string_view name) {
  if (name == "mixed") name = "mixed-4-6";
  return {name[name.size() - 3] - '0', name.back() - '0'};
}

bool holds(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

std::span<const std::string_view> recipe_names() { return kNames; }

Recipe::Recipe(const Options& options, const ModelConfig& config)
    : low_(options.bits),
      high_(options.bits),
      group_(options.group),
      expert_bits_(options.bits),
      layers_(config.layers) {
  if (options.profile == "q4") return;
  if (options.bits != 4) {
    fail_expected(ErrorCode::kInvalidArgument, "--bits",
                  fmt::format("none beside --profile {}, which says them", options.profile),
                  std::to_string(options.bits));
  }
  if (options.profile == "q3-activation") {
    if (!config.is_moe())
      fail_expected(ErrorCode::kInvalidArgument, "--profile q3-activation", "a model with experts",
                    config.model_type);
    expert_bits_ = 3;
    return;
  }
  if (std::find(kNames.begin(), kNames.end(), options.profile) == kNames.end())
    fail_expected(ErrorCode::kInvalidArgument, "--profile", fmt::format("{}", fmt::join(kNames, ", ")),
                  options.profile);
  const Mix mix = mix_of(options.profile);
  low_ = expert_bits_ = mix.low;
  high_ = mix.high;
}

bool Recipe::is_favoured_layer(std::string_view module) const {
  constexpr std::string_view kLayers = "layers.";
  if (!module.starts_with(kLayers)) return true;  // the one layer of the draft head
  int layer = 0;
  std::from_chars(module.data() + kLayers.size(), module.data() + module.size(), layer);
  const int eighth = layers_ / 8;
  return layer < eighth || layer >= 7 * layers_ / 8 || (layer - eighth) % 3 == 2;
}

int Recipe::bits_of(std::string_view module) const {
  if (module == "lm_head") return high_;
  if (high_ != low_ && (holds(module, "v_proj") || holds(module, "down_proj")) && is_favoured_layer(module))
    return high_;
  return holds(module, "switch_mlp.") ? expert_bits_ : low_;
}

std::optional<AffineFormat> Recipe::format_of(std::string_view module, std::int64_t in) const {
  AffineFormat format{bits_of(module), group_};
  if ((module.ends_with("mlp.gate") || module.ends_with("shared_expert_gate")) && in % 64 == 0)
    format = {8, 64};
  if (holds(module, "ngram_embedding")) format.group = 32;
  if (in % format.group != 0) return std::nullopt;
  return format;
}

}  // namespace mererun
