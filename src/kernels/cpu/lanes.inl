// A vector of floats and how it gets in and out of memory. Included once per instruction set, in
// that set's namespace, after kVectorBytes; the set's file adds square_root(Vec), the conversions
// widen_half(), narrow_half() and narrow_bfloat16(), which round to nearest even, any_set(), which
// asks for a lane that is not zero, and the aligned store_past_cache(), whose memory other threads
// may read after end_stores_past_cache().
//
// Only builtins, no function of the standard library: its inline functions are everybody's, and the
// linker might keep the copy that this instruction set's flags made.

constexpr int kLanes = kVectorBytes / 4;

using RawFloats = float __attribute__((vector_size(kVectorBytes)));
using RawInts = std::int32_t __attribute__((vector_size(kVectorBytes)));
using RawWords = std::uint32_t __attribute__((vector_size(kVectorBytes)));
using RawHalves = std::uint16_t __attribute__((vector_size(kVectorBytes / 2)));
using RawHalfFloats = float __attribute__((vector_size(kVectorBytes / 2)));
using RawDoubles = double __attribute__((vector_size(kVectorBytes)));

struct Vec {
  RawFloats v;
};

static inline Vec operator+(Vec a, Vec b) {
  return {a.v + b.v};
}
static inline Vec operator-(Vec a, Vec b) {
  return {a.v - b.v};
}
static inline Vec operator*(Vec a, Vec b) {
  return {a.v * b.v};
}
static inline Vec operator/(Vec a, Vec b) {
  return {a.v / b.v};
}
static inline Vec operator+(Vec a, float b) {
  return {a.v + b};
}
static inline Vec operator-(Vec a, float b) {
  return {a.v - b};
}
static inline Vec operator*(Vec a, float b) {
  return {a.v * b};
}
static inline RawFloats floats_of(RawWords bits) {
  return (RawFloats)bits;
}
static inline RawWords words_of(RawFloats x) {
  return (RawWords)x;
}
static inline RawWords choose(RawWords mask, RawWords yes, RawWords no) {
  return (mask & yes) | (~mask & no);
}
static inline Vec largest(Vec a, Vec b) {
  return {floats_of(choose((RawWords)(a.v > b.v), words_of(a.v), words_of(b.v)))};
}
static inline Vec not_below_zero(Vec y) {
  return {floats_of(words_of(y.v) & ~(RawWords)(y.v < 0.0f))};
}
static inline Vec unless_not_positive(Vec y, Vec x) {
  return {floats_of(words_of(x.v) & ~(RawWords)(y.v <= 0.0f))};
}
static inline Vec absolute(Vec a) {
  return {floats_of(words_of(a.v) & 0x7fffffffu)};
}

// Float16 without a conversion instruction, by integer arithmetic and one exact float operation
// (after Marat Dukhan's FP16); numbers below float16's normal range stay exact even where
// the processor flushes float's own.
static inline RawFloats widen_half_anywhere(RawHalves h) {
  const RawWords w = __builtin_convertvector(h, RawWords) << 16;
  const RawWords sign = w & 0x80000000u;
  const RawWords twice = w + w;
  const RawFloats normal = floats_of((twice >> 4) + 0x70000000u) * 0x1.0p-112f;
  const RawFloats tiny = floats_of((twice >> 17) | 0x3f000000u) - 0.5f;
  const RawWords is_tiny = (RawWords)(twice < 0x08000000u);
  return floats_of(sign | choose(is_tiny, words_of(tiny), words_of(normal)));
}

static inline RawHalves narrow_half_anywhere(RawFloats f) {
  const RawWords w = words_of(f);
  const RawWords magnitude = w & 0x7fffffffu;
  const RawWords sign = w & 0x80000000u;
  const RawWords twice = w + w;
  const RawFloats scaled = (floats_of(magnitude) * 0x1.0p+112f) * 0x1.0p-110f;
  RawWords bias = twice & 0xff000000u;
  bias = choose((RawWords)(bias < 0x71000000u), RawWords{} + 0x71000000u, bias);
  const RawWords bits = words_of(floats_of((bias >> 1) + 0x07800000u) + scaled);
  const RawWords number = ((bits >> 13) & 0x00007c00u) + (bits & 0x00000fffu);
  const RawWords is_nan = (RawWords)(twice > 0xff000000u);
  const RawWords half = (sign >> 16) | choose(is_nan, RawWords{} + 0x7e00u, number);
  return __builtin_convertvector(half, RawHalves);
}

static inline RawHalves narrow_bfloat16_anywhere(RawFloats f) {
  const RawWords w = words_of(f);
  const RawWords rounded = (w + 0x7fffu + ((w >> 16) & 1u)) >> 16;
  const RawWords is_nan = (RawWords)((w & 0x7fffffffu) > 0x7f800000u);
  return __builtin_convertvector(choose(is_nan, RawWords{} + 0x7fc0u, rounded), RawHalves);
}
