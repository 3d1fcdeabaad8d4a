#include "model/norm_convention.h"

#include <cmath>
#include <string>

#include "base/error.h"

namespace mererun {

std::string_view name_of(NormConvention convention) {
  return convention == NormConvention::kFinal ? "final" : "zero-centred";
}

NormConvention parse_norm_convention(std::string_view text) {
  if (text == "final") return NormConvention::kFinal;
  if (text == "zero-centred" || text == "zero-centered") return NormConvention::kZeroCentred;
  fail_expected(ErrorCode::kInvalidArgument, "norm convention", "final or zero-centred", text);
}

void NormStatistics::add(std::span<const float> weight) {
  for (const float w : weight) {
    ++entries;
    if (w < 0.0f) ++negative;
    if (w == 0.0f) ++zero;
    sum += static_cast<double>(w);
  }
}

void NormStatistics::add(const NormStatistics& other) {
  entries += other.entries;
  negative += other.negative;
  zero += other.zero;
  sum += other.sum;
}

NormConvention measured_convention(const NormStatistics& group) {
  const bool silent = group.entries > 0 && group.zero == group.entries;
  return group.negative_share() > 0.05 || silent ? NormConvention::kZeroCentred : NormConvention::kFinal;
}

bool contradicts(const NormStatistics& tensor, NormConvention group) {
  const double mean = tensor.mean();
  if (group == NormConvention::kFinal) {
    return tensor.zero == tensor.entries || (tensor.negative_share() > 0.25 && std::abs(mean) < 0.5);
  }
  return tensor.negative == 0 && mean > 0.75 && mean < 1.5;
}

void apply_convention(NormConvention convention, std::span<float> weight) {
  if (convention == NormConvention::kFinal) return;
  for (float& w : weight) w += 1.0f;
}

}  // namespace mererun
