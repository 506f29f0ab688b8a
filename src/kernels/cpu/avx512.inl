// AVX-512: the vector and its conversions, for the files of this set, inside its namespace.

constexpr int kVectorBytes = 64;
#include "kernels/cpu/lanes.inl"

// The masked forms with a full mask are the plain instructions; g++ 12 warns of uninitialised
// memory in its own header for the plain forms (its bug 105593).
constexpr __mmask16 kAll = 0xffff;

static inline Vec square_root(Vec x) {
  return {(RawFloats)_mm512_maskz_sqrt_ps(kAll, (__m512)x.v)};
}
static inline bool any_set(RawWords mask) {
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
}
static inline void store_past_cache(void* to, RawFloats x) {
  _mm512_stream_ps((float*)to, (__m512)x);
}
static inline void store_past_cache(void* to, RawHalves x) {
  _mm256_stream_si256((__m256i*)to, (__m256i)x);
}
static inline void end_stores_past_cache() {
  _mm_sfence();
}
static inline RawFloats widen_half(RawHalves h) {
  return (RawFloats)_mm512_maskz_cvtph_ps(kAll, (__m256i)h);
}
static inline RawHalves narrow_half(RawFloats f) {
  return (RawHalves)_mm512_maskz_cvtps_ph(kAll, (__m512)f, _MM_FROUND_TO_NEAREST_INT);
}
// The upper halves of the words, after rounding in place.
static inline RawHalves narrow_bfloat16(RawFloats f) {
  const __m512i w = (__m512i)f;
  const __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)f, (__m512)f, _CMP_UNORD_Q);
  const __mmask16 is_odd = _mm512_test_epi32_mask(w, _mm512_set1_epi32(0x10000));
  __m512i rounded = _mm512_add_epi32(w, _mm512_set1_epi32(0x7fff));
  rounded = _mm512_mask_add_epi32(rounded, is_odd, rounded, _mm512_set1_epi32(1));
  rounded = _mm512_mask_mov_epi32(rounded, is_nan, _mm512_set1_epi32(0x7fc00000));
  return __builtin_convertvector((RawWords)rounded >> 16, RawHalves);
}
