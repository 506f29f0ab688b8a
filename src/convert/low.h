// Rounding float to float16 and bfloat16, to nearest, ties to even.
#pragma once

#include <cstdint>
#include <span>

#include "convert/element.h"

namespace mezzo::convert {

/// The largest finite value of float16 or bfloat16.
double largest(Element low);
/// From this magnitude on, rounding to nearest gives infinity.
double overflows_at(Element low);
/// The smallest positive normal value.
double smallest_normal(Element low);
/// At this magnitude and below, rounding to nearest gives zero.
double vanishes_at(Element low);

/// Rounds all values; NaN stays NaN, infinities stay, overflow gives infinity. `out` has as many
/// elements as `in`.
void round_to(Element low, std::span<const float> in, std::span<std::uint16_t> out);

/// The value of a float16 or bfloat16 number.
float widen(Element low, std::uint16_t bits);

}  // namespace mezzo::convert
