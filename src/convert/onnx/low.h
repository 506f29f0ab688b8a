// Rounding float to float16 and bfloat16, to nearest, ties to even.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "convert/onnx/element.h"

namespace mezzo::convert {

/// The largest finite value of float16 or bfloat16.
double largest(Element low);
/// From this magnitude on, rounding to nearest gives infinity.
double overflows_at(Element low);
/// The smallest positive normal value.
double smallest_normal(Element low);
/// At this magnitude and below, rounding to nearest gives zero.
double vanishes_at(Element low);

/// A value that is never larger than this on samples stays float32: most of what it holds is
/// smaller, and below the smallest normal value digits go with every halving.
double least_magnitude(Element low);

/// The changes to constants that the caller allows besides rounding them.
struct Allowed {
  bool clamping = false;  // of weights beyond the range
  bool raising = false;   // of epsilons below the smallest normal value
};

/// Between which magnitudes values are brought before they are rounded; by itself between none.
/// Signs, zeros, infinities and NaN stay.
struct Bounds {
  float least = 0;
  float most = std::numeric_limits<float>::infinity();

  bool is_open() const { return least == 0 && most == std::numeric_limits<float>::infinity(); }
  float bring(float value) const;
};

/// Rounds all values; NaN stays NaN, infinities stay, overflow gives infinity. `out` has as many
/// elements as `in`.
void round_to(Element low, std::span<const float> in, std::span<std::uint16_t> out);

/// The value of a float16 or bfloat16 number.
float widen(Element low, std::uint16_t bits);

/// The values of many; `out` has as many elements as `in`.
void widen_to(Element low, std::span<const std::uint16_t> in, std::span<float> out);

/// Gives every value what is left of it after rounding to the low type.
void round_in_place(Element low, std::span<float> values);

}  // namespace mezzo::convert
