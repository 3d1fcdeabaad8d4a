#pragma once

#include <cstdint>

#include "base/types.h"

namespace mererun {

/// The noise of one sampled token: a pure function of (seed, position, id), so that drafting, caching and
/// batching cannot shift a draw. `position` is the absolute index of the token being chosen.
///
/// Thread-safety: immutable.
/// Source: Gumbel-max sampling (Maddison, Tarlow and Minka 2014, section 2): the largest logit/T + g is a
/// draw from softmax(logit/T) when the g are independent and standard Gumbel.
class KeyedDraw {
 public:
  KeyedDraw(std::uint64_t seed, Position position);

  /// Uniform in (0, 1): (h + 0.5) * 2^-52 for an integer 0 <= h < 2^52, exact in double.
  double uniform(TokenId id) const;

  /// Standard Gumbel noise -ln(-ln u), by the project's own logarithm.
  double gumbel(TokenId id) const;

  /// A number no smaller than gumbel(id), found without a logarithm.
  double gumbel_bound(TokenId id) const;

 private:
  std::uint64_t hash(TokenId id) const;

  std::uint64_t key_;
};

}  // namespace mererun
