#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace mererun {

/// How a checkpoint stores the weight of an RMS norm: the factor itself, or the factor minus one.
enum class NormConvention { kFinal, kZeroCentred };
/// "final" or "zero-centred".
std::string_view name_of(NormConvention convention);
/// Inverse of name_of; "zero-centered" is accepted too. Errors: kInvalidArgument.
NormConvention parse_norm_convention(std::string_view text);

/// Counts over the entries of one norm weight or of several.
struct NormStatistics {
  std::int64_t entries = 0;
  std::int64_t negative = 0;
  std::int64_t zero = 0;
  double sum = 0;

  void add(std::span<const float> weight);
  void add(const NormStatistics& other);
  double negative_share() const {
    return entries == 0 ? 0.0 : static_cast<double>(negative) / static_cast<double>(entries);
  }
  double mean() const { return entries == 0 ? 0.0 : sum / static_cast<double>(entries); }
};

/// The convention that the entries of a group of norms show: zero-centred if more than 5% are negative or all
/// are exactly 0 (a factor of 0 would silence the layer), else final.
NormConvention measured_convention(const NormStatistics& group);

/// Whether one tensor clearly shows the other convention than its group: nearly half negative around 0 in a
/// final group, or no negative entry around 1 in a zero-centred one. Anything less clear follows the group.
bool contradicts(const NormStatistics& tensor, NormConvention group);

/// Makes a stored weight final, once, in f32: w + 1 if zero-centred.
void apply_convention(NormConvention convention, std::span<float> weight);

}  // namespace mererun
