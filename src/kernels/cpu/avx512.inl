// AVX-512: the vector and its conversions, for the files of this set, inside its namespace.

constexpr int kVectorBytes = 64;
#include "kernels/cpu/lanes.inl"

// The masked forms with a full mask are the plain instructions; g++ 12 warns of uninitialised
// memory in its own header for the plain forms (its bug 105593).
constexpr __mmask16 kAll = 0xffff;

static inline Vec square_root(Vec x) {
  return {(RawFloats)_mm512_maskz_sqrt_ps(kAll, (__m512)x.v)};
}
static inline RawFloats widen_half(RawHalves h) {
  return (RawFloats)_mm512_maskz_cvtph_ps(kAll, (__m256i)h);
}
static inline RawHalves narrow_half(RawFloats f) {
  return (RawHalves)_mm512_maskz_cvtps_ph(kAll, (__m512)f, _MM_FROUND_TO_NEAREST_INT);
}
