#include "decode/token_selection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/f64_math.h"

namespace mererun {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr std::size_t kLanes = 16;  // independent maxima, so that the loops below become vector code

/// Largest value of `n` entries without NaN, n a multiple of kLanes.
float largest_of(const float* values, std::size_t n) {
  std::array<float, kLanes> lanes;
  lanes.fill(kMinusInfinity);
  for (std::size_t i = 0; i < n; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
  }
  return *std::max_element(lanes.begin(), lanes.end());
}

bool all_numeric(const float* values, std::size_t n) {
  std::array<std::int32_t, kLanes> bad{};
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (std::size_t i = 0; i < n; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j)
      bad[j] |= values[i + j] <= kLargest ? 0 : 1;  // NaN compares false
  }
  return std::all_of(bad.begin(), bad.end(), [](std::int32_t lane) { return lane == 0; });
}

// A weight below 2^-53 added to a sum of at least 1 leaves it unchanged; e^-36.8 is below that.
constexpr double kVanishingExponent = -36.8;

/// Sum of the candidates' weights in their order.
double ordered_mass(const SoftmaxScale& scale, std::span<const Candidate> candidates) {
  constexpr std::size_t kChunk = 64;  // weights first, as vector code; only the sum has an order
  std::array<double, kChunk> weights;
  double total = 0;
  std::size_t start = 0;
  for (; start + kChunk <= candidates.size(); start += kChunk) {
    for (std::size_t i = 0; i < kChunk; ++i) {
      const double exponent = scale.exponent(candidates[start + i].value);
      weights[i] =
          f64_exp_in_range(exponent > -700.0 ? exponent : -700.0);  // e^-700 is no more than nothing here
    }
    for (const double weight : weights) total += weight;
  }
  for (; start < candidates.size(); ++start) total += f64_exp(scale.exponent(candidates[start].value));
  return total;
}

}  // namespace

RowMaximum find_maximum(std::span<const float> row) {
  constexpr std::size_t kBlock = 64 * kLanes;
  RowMaximum best{kMinusInfinity, -1, true};
  std::size_t best_block = 0;
  std::size_t start = 0;
  bool found = false;
  for (; start + kBlock <= row.size(); start += kBlock) {
    if (!all_numeric(row.data() + start, kBlock)) return {0, -1, false};
    const float value = largest_of(row.data() + start, kBlock);
    if (value > best.value) {
      best.value = value;
      best_block = start;
      found = true;
    }
  }
  if (found) {
    const float* at = std::find(row.data() + best_block, row.data() + best_block + kBlock, best.value);
    best.index = static_cast<std::int32_t>(at - row.data());
  }
  for (; start < row.size(); ++start) {
    const float value = row[start];
    if (!(value <= std::numeric_limits<float>::max())) return {0, -1, false};
    if (value > best.value) best = {value, static_cast<std::int32_t>(start), true};
  }
  return best;
}

double chance_of_largest(std::span<const float> row) {
  constexpr float kRange = 16;
  constexpr std::size_t kChunk = 4 * kLanes;
  const float* values = row.data();
  const std::size_t whole = row.size() / kChunk * kChunk;
  float largest = whole > 0 ? largest_of(values, whole) : kMinusInfinity;
  for (std::size_t i = whole; i < row.size(); ++i) largest = values[i] > largest ? values[i] : largest;
  if (largest == kMinusInfinity) return 0;
  double mass = 0;
  const auto add = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      if (values[i] > largest - kRange)
        mass += f64_exp(static_cast<double>(values[i]) - static_cast<double>(largest));
  };
  for (std::size_t i = 0; i < whole; i += kChunk)
    if (largest_of(values + i, kChunk) > largest - kRange) add(i, i + kChunk);
  add(whole, row.size());
  return mass > 0 ? 1 / mass : 0;
}

void select_top_k(std::span<const float> row, int k, std::vector<Candidate>& out) {
  constexpr std::size_t kBlock = 4 * kLanes;
  const auto keep = static_cast<std::size_t>(k);
  // A full buffer is cut to the best k; its last value is then what a later entry has to exceed (an equal one
  // has a higher index and loses).
  const std::size_t capacity = std::min(row.size(), 2 * keep + kBlock);
  float threshold = kMinusInfinity;
  out.clear();
  out.reserve(capacity);
  const auto cut = [&] {
    if (out.size() <= keep) return;
    std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(keep) - 1, out.end(),
                     ranks_before);
    out.resize(keep);
    threshold = out.back().value;
  };
  for (std::size_t start = 0; start < row.size(); start += kBlock) {
    const std::size_t end = std::min(row.size(), start + kBlock);
    if (end - start == kBlock && !(largest_of(row.data() + start, kBlock) > threshold)) continue;
    for (std::size_t i = start; i < end; ++i) {
      if (!(row[i] > threshold)) continue;
      if (out.size() == capacity) cut();
      if (row[i] > threshold) out.push_back({row[i], static_cast<std::int32_t>(i)});
    }
  }
  cut();
  std::sort(out.begin(), out.end(), ranks_before);
}

void rank(std::vector<Candidate>& candidates) {
  if (candidates.size() < 2048) {
    std::sort(candidates.begin(), candidates.end(), ranks_before);
    return;
  }
  // Stable radix sort on the value alone: equal values keep their ascending indices.
  constexpr int kDigitBits = 11;
  constexpr std::uint32_t kDigits = 1u << kDigitBits;
  const auto key_of = [](const Candidate& candidate) {
    const auto bits = std::bit_cast<std::uint32_t>(candidate.value + 0.0f);  // -0 becomes +0
    return (bits >> 31) != 0 ? bits : ~(bits | 0x80000000u);                 // larger value, smaller key
  };
  std::array<std::array<std::uint32_t, kDigits>, 3> offsets{};
  for (const Candidate& candidate : candidates) {
    const std::uint32_t key = key_of(candidate);
    for (int pass = 0; pass < 3; ++pass) ++offsets[pass][key >> (pass * kDigitBits) & (kDigits - 1)];
  }
  std::vector<Candidate> other(candidates.size());
  for (int pass = 0; pass < 3; ++pass) {
    std::uint32_t next = 0;
    for (std::uint32_t& offset : offsets[pass]) {
      const std::uint32_t count = offset;
      offset = next;
      next += count;
    }
    for (const Candidate& candidate : candidates) {
      other[offsets[pass][key_of(candidate) >> (pass * kDigitBits) & (kDigits - 1)]++] = candidate;
    }
    candidates.swap(other);
  }
}

void keep_top_p(const SoftmaxScale& scale, double top_p, std::vector<Candidate>& ranked) {
  const double wanted = top_p * ordered_mass(scale, ranked);
  double mass = 0;
  std::size_t kept = 0;
  while (kept < ranked.size() && mass < wanted) mass += f64_exp(scale.exponent(ranked[kept++].value));
  ranked.resize(std::max<std::size_t>(kept, 1));
}

namespace {

/// The candidates of a row that a ranked sum can notice, in ascending index order.
void collect_noticeable(std::span<const float> row, const SoftmaxScale& scale, std::vector<Candidate>& out) {
  out.clear();
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (scale.exponent(row[i]) >= kVanishingExponent) out.push_back({row[i], static_cast<std::int32_t>(i)});
  }
}

/// Sum of a row's weights in any order: within 2 n 2^-53 of the ranked sum.
double unordered_mass(std::span<const float> row, const SoftmaxScale& scale) {
  double lanes[4] = {0, 0, 0, 0};
  const double inverse = 1.0 / scale.temperature;
  std::size_t i = 0;
  for (; i + 4 <= row.size(); i += 4) {
    for (std::size_t j = 0; j < 4; ++j) {
      const double exponent = (static_cast<double>(row[i + j]) - scale.largest) * inverse;
      lanes[j] += f64_exp_in_range(exponent > -700.0 ? exponent : -700.0);
    }
  }
  for (; i < row.size(); ++i) lanes[0] += f64_exp(scale.exponent(row[i]));
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

}  // namespace

void select_top_p(std::span<const float> row, const SoftmaxScale& scale, double top_p,
                  std::vector<Candidate>& out) {
  // The total in any order decides where the prefix ends, unless the end lies within the rounding of the two
  // sums (n entries: n 2^-53 each, and 1e-14 for multiplying by 1/T at |exponent| < 37). Then, or when the
  // prefix is long, the row is ranked whole.
  const double slack = static_cast<double>(row.size()) * 1e-15 + 1e-13;
  const double wanted = top_p * unordered_mass(row, scale);
  for (std::size_t k = 256; k <= row.size() / 4; k *= 8) {
    select_top_k(row, static_cast<int>(k), out);
    double mass = 0;
    std::size_t kept = 0;
    while (kept < out.size() && mass < wanted * (1 - slack))
      mass += f64_exp(scale.exponent(out[kept++].value));
    if (mass < wanted * (1 - slack)) continue;
    if (mass < wanted * (1 + slack)) break;
    out.resize(kept);
    return;
  }
  collect_noticeable(row, scale, out);
  rank(out);
  keep_top_p(scale, top_p, out);
}

double ranked_mass(std::span<const float> row, const SoftmaxScale& scale, std::vector<Candidate>& scratch) {
  collect_noticeable(row, scale, scratch);
  rank(scratch);
  return ordered_mass(scale, scratch);
}

}  // namespace mererun
