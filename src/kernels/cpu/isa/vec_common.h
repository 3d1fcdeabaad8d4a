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

#if defined(__SSSE3__)
struct BytePlanes {
  /// Planes of eight codes: the low bytes of codes 0 4 1 5, their high bytes, the low bytes of codes 2 6 3 7,
  /// their high bytes. In this order a unit's 4-bit codes lie in the lower and upper halves of a lane's
  /// bytes.
  MERERUN_VEC static void split_codes(const std::int16_t* codes, std::byte* planes) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    const __m128i order = _mm_setr_epi8(0, 8, 2, 10, 1, 9, 3, 11, 4, 12, 6, 14, 5, 13, 7, 15);
    // (X + 128) >> 8 above the low byte of X, which the sum has with its upper bit turned over.
    const __m128i both = _mm_xor_si128(_mm_add_epi16(x, _mm_set1_epi16(128)), _mm_set1_epi16(128));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(planes), _mm_shuffle_epi8(both, order));
  }
};
#endif
