#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mererun {

/// One entry of a row of logits that may be chosen.
struct Candidate {
  float value = 0;         // finite
  std::int32_t index = 0;  // place in the row
};

/// The one order of candidates: larger value first, on equal values (-0 equals +0) the lower index.
inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

struct RowMaximum {
  float value = 0;          // -inf when every entry is -inf
  std::int32_t index = -1;  // lowest index that holds it; -1 when every entry is -inf
  bool is_numeric = true;   // false when any entry is NaN or +inf; the rest then means nothing
};

/// The largest entry of a row, in one pass without sorting.
RowMaximum find_maximum(std::span<const float> row);

/// Share of the row's largest value in a softmax of the row, entries of e^-16 of it and less left out; 0 when
/// no entry is a number above -inf.
double chance_of_largest(std::span<const float> row);

/// Replaces `out` by the `k` >= 1 first candidates of the row, in order. Entries of -inf are no candidates,
/// so fewer may come back. The row must be numeric.
void select_top_k(std::span<const float> row, int k, std::vector<Candidate>& out);

/// Sorts candidates that are in ascending index order.
void rank(std::vector<Candidate>& candidates);

/// Probabilities softmax(value / temperature), up to a factor: e^((value - largest) / temperature).
struct SoftmaxScale {
  double largest = 0;
  double temperature = 1;  // > 0

  double exponent(float value) const { return (static_cast<double>(value) - largest) / temperature; }
};

/// Keeps the shortest prefix of ranked candidates whose mass is at least `top_p` of their total. Weights and
/// sums are in double, in rank order. At least one candidate stays.
void keep_top_p(const SoftmaxScale& scale, double top_p, std::vector<Candidate>& ranked);

/// Same result as ranking the whole row and keep_top_p, for a numeric row with a candidate; usually without
/// the sort.
void select_top_p(std::span<const float> row, const SoftmaxScale& scale, double top_p,
                  std::vector<Candidate>& out);

/// Sum over a numeric row with a finite maximum of e^((value - largest) / temperature), in double, in rank
/// order.
double ranked_mass(std::span<const float> row, const SoftmaxScale& scale, std::vector<Candidate>& scratch);

}  // namespace mererun
