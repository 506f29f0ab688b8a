#include "convert/onnx/low.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace mezzo::convert {
namespace {

std::uint16_t half_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<std::uint16_t>(sign | 0x7E00U | (magnitude >> 13 & 0x1FFU));
  }
  if (magnitude >= 0x477FF000U) return sign | 0x7C00U;  // 65520 and above
  if (magnitude < 0x38800000U) {  // subnormal: let the float unit round at the right place
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + (magnitude >> 13 & 1U);
  return static_cast<std::uint16_t>(sign | (rounded - 0x38000000U) >> 13);
}

// Without branches, so that a loop over it becomes vector code.
std::uint16_t bfloat_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
  const std::uint32_t quiet = bits >> 16 | 0x40U;
  const bool is_nan = static_cast<std::int32_t>(bits & 0x7FFFFFFFU) > 0x7F800000;
  return static_cast<std::uint16_t>(is_nan ? quiet : rounded);
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void halves(std::span<const float> in,
                                                std::span<std::uint16_t> out) {
  std::size_t i = 0;
  for (; i + 8 <= in.size(); i += 8) {
    const __m128i packed =
        _mm256_cvtps_ph(_mm256_loadu_ps(in.data() + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out.data() + i), packed);
  }
  for (; i < in.size(); ++i) out[i] = half_of(in[i]);
}

__attribute__((target("avx,f16c"))) void widened_halves(std::span<const std::uint16_t> in,
                                                        std::span<float> out) {
  std::size_t i = 0;
  for (; i + 8 <= in.size(); i += 8) {
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in.data() + i));
    _mm256_storeu_ps(out.data() + i, _mm256_cvtph_ps(packed));
  }
  for (; i < in.size(); ++i) out[i] = widen(Element::kFloat16, in[i]);
}
#endif

}  // namespace

double largest(Element low) {
  return low == Element::kFloat16 ? 65504.0 : std::ldexp(255.0, 120);
}

double overflows_at(Element low) {
  return low == Element::kFloat16 ? 65520.0 : std::ldexp(511.0, 119);
}

double smallest_normal(Element low) {
  return low == Element::kFloat16 ? std::ldexp(1.0, -14) : std::ldexp(1.0, -126);
}

double least_magnitude(Element low) {
  return 4 * smallest_normal(low);
}

double vanishes_at(Element low) {
  return low == Element::kFloat16 ? std::ldexp(1.0, -25) : std::ldexp(1.0, -134);
}

#if defined(__x86_64__)
namespace {

// clang 14's __builtin_cpu_supports does not know F16C, so the processor is asked itself.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
         (c & bit_F16C) != 0;
}

// Virtual machines take long to answer, and weights may be many and small.
bool converts_halves() {
  static const bool is_there = has_f16c();
  return is_there;
}

}  // namespace
#endif

float Bounds::bring(float value) const {
  const float magnitude = std::fabs(value);
  if (magnitude == 0 || !std::isfinite(value)) return value;
  return std::copysign(std::clamp(magnitude, least, most), value);
}

void round_to(Element low, std::span<const float> in, std::span<std::uint16_t> out) {
  if (low == Element::kBFloat16) {
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = bfloat_of(in[i]);
    return;
  }
#if defined(__x86_64__)
  if (converts_halves()) return halves(in, out);
#endif
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = half_of(in[i]);
}

float widen(Element low, std::uint16_t bits) {
  if (low == Element::kBFloat16) return std::bit_cast<float>(std::uint32_t{bits} << 16);
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13);
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

void widen_to(Element low, std::span<const std::uint16_t> in, std::span<float> out) {
  if (low == Element::kBFloat16) {
    for (std::size_t i = 0; i < in.size(); ++i)
      out[i] = std::bit_cast<float>(std::uint32_t{in[i]} << 16);
    return;
  }
#if defined(__x86_64__)
  if (converts_halves()) return widened_halves(in, out);
#endif
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = widen(low, in[i]);
}

void round_in_place(Element low, std::span<float> values) {
  constexpr std::size_t kBlock = 1024;  // stays in the first cache
  std::array<std::uint16_t, kBlock> bits;
  for (std::size_t i = 0; i < values.size(); i += kBlock) {
    const std::span<float> block = values.subspan(i, std::min(kBlock, values.size() - i));
    const std::span<std::uint16_t> narrow = std::span(bits).first(block.size());
    round_to(low, block, narrow);
    widen_to(low, narrow, block);
  }
}

}  // namespace mezzo::convert
