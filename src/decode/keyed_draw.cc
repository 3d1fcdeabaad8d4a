#include "decode/keyed_draw.h"

#include <bit>

#include "base/f64_math.h"
#include "base/split_mix.h"

namespace mererun {
namespace {

/// The first number of a SplitMix64 generator that starts at `state`.
std::uint64_t first_number(std::uint64_t state) { return split_mix(state + kSplitMixIncrement); }

}  // namespace

KeyedDraw::KeyedDraw(std::uint64_t seed, Position position)
    : key_(first_number(seed ^ first_number(static_cast<std::uint64_t>(position)))) {}

std::uint64_t KeyedDraw::hash(TokenId id) const {
  return first_number(key_ ^ first_number(static_cast<std::uint64_t>(id))) >> 12;
}

double KeyedDraw::uniform(TokenId id) const { return (static_cast<double>(hash(id)) + 0.5) * 0x1p-52; }

double KeyedDraw::gumbel(TokenId id) const { return -f64_ln(-f64_ln(uniform(id))); }

double KeyedDraw::gumbel_bound(TokenId id) const {
  // -ln u >= 1 - u, hence g <= -ln(1 - u); and 1 - u > 2^(e - 52) with e the highest set bit of 2^52 - 1 - h.
  // Where that is 0, 1 - u = 2^-53.
  const std::uint64_t complement = ((std::uint64_t{1} << 52) - 1) - hash(id);
  const int leading_zeros = std::countl_zero(complement << 12 | 0x800);
  constexpr double kLn2RoundedUp = 0.69314719;  // above ln 2 by more than the error of gumbel()
  return (leading_zeros + 1) * kLn2RoundedUp;
}

}  // namespace mererun
