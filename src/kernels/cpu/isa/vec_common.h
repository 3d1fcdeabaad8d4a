#pragma once

// What the vectors of every instruction set begin with; included by each vec_*.h, inside its namespace.

#define MERERUN_VEC [[gnu::always_inline]] inline

/// Two int16 as one int32.
MERERUN_VEC std::int32_t load_pair(const std::int16_t* pair) {
  std::int32_t both;
  __builtin_memcpy(&both, pair, sizeof both);
  return both;
}

/// Where kHasByteDots: 16 lanes of exact sums of 4-bit codes times byte planes (bytes.h), of at most 128
/// codes.
struct ByteSums;
