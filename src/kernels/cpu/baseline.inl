// 16-byte vectors: the vector and its conversions, for the files of this set, inside its namespace.

constexpr int kVectorBytes = 16;
#include "kernels/cpu/lanes.inl"

static inline Vec square_root(Vec x) {
  for (int i = 0; i < kLanes; ++i) x.v[i] = sqrtf(x.v[i]);
  return x;
}
static inline bool any_set(RawWords mask) {
  std::uint64_t parts[kVectorBytes / 8];
  __builtin_memcpy(parts, &mask, sizeof(parts));
  std::uint64_t all = 0;
  for (const std::uint64_t part : parts) all |= part;
  return all != 0;
}
// Through the caches: there are no such stores everywhere.
template <typename T>
static inline void store_past_cache(void* to, T x) {
  __builtin_memcpy(to, &x, sizeof(T));
}
static inline void end_stores_past_cache() {}
static inline RawFloats widen_half(RawHalves h) {
  return widen_half_anywhere(h);
}
static inline RawHalves narrow_half(RawFloats f) {
  return narrow_half_anywhere(f);
}
static inline RawHalves narrow_bfloat16(RawFloats f) {
  return narrow_bfloat16_anywhere(f);
}
