#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/config.h"
#include "model/quantization.h"

namespace mererun {

/// Which precision each matrix of a converted checkpoint gets.
///
///   q4             `bits` everywhere
///   q3-activation  routed experts in 3 bits, everything else in 4
///   mixed-L-H      L bits, but H for value and down projections of the first and last eighth of the layers,
///                  of every third layer between and of the draft head, and for the output matrix; "mixed" is
///                  mixed-4-6
///
/// In each, routers and shared-expert gates have 8 bits with groups of 64, the rows of an n-gram table groups
/// of 32. A matrix whose rows are no multiple of its group stays BF16. Source: the recipes of mlx-lm and
/// mlx-vlm, by their rules.
///
/// Thread-safety: immutable, thread-safe.
class Recipe {
 public:
  struct Options {
    std::string profile = "q4";
    int bits = 4;
    int group = 64;
  };

  /// Errors: kInvalidArgument for an unknown profile, for q3-activation without experts, and for bits other
  /// than 4 beside a profile that fixes them.
  Recipe(const Options& options, const ModelConfig& config);

  /// Of a matrix with the canonical module name (`layers.3.self_attn.v_proj`, `mtp.fc`, `lm_head`) and rows
  /// of `in` weights; no value if it stays as it is.
  std::optional<AffineFormat> format_of(std::string_view module, std::int64_t in) const;

  /// What most matrices get: the default of `quantization` in config.json.
  AffineFormat main() const { return {low_, group_}; }

 private:
  int bits_of(std::string_view module) const;
  bool is_favoured_layer(std::string_view module) const;

  int low_ = 4;
  int high_ = 4;
  int group_ = 64;
  int expert_bits_ = 4;
  int layers_ = 0;
};

/// The names of the profiles, in the order of the help.
std::span<const std::string_view> recipe_names();

}  // namespace mererun
