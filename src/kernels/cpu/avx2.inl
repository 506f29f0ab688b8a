// AVX2: the vector and its conversions, for the files of this set, inside its namespace.

constexpr int kVectorBytes = 32;
#include "kernels/cpu/lanes.inl"

static inline Vec square_root(Vec x) {
  return {(RawFloats)_mm256_sqrt_ps((__m256)x.v)};
}
static inline bool any_set(RawWords mask) {
  return _mm256_movemask_epi8((__m256i)mask) != 0;
}
static inline void store_past_cache(void* to, RawFloats x) {
  _mm256_stream_ps((float*)to, (__m256)x);
}
static inline void store_past_cache(void* to, RawHalves x) {
  _mm_stream_si128((__m128i*)to, (__m128i)x);
}
static inline void end_stores_past_cache() {
  _mm_sfence();
}
static inline RawFloats widen_half(RawHalves h) {
  return (RawFloats)_mm256_cvtph_ps((__m128i)h);
}
static inline RawHalves narrow_half(RawFloats f) {
  return (RawHalves)_mm256_cvtps_ph((__m256)f, _MM_FROUND_TO_NEAREST_INT);
}
static inline RawHalves narrow_bfloat16(RawFloats f) {
  return narrow_bfloat16_anywhere(f);
}
