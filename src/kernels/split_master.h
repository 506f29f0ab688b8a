// A float master as the bfloat16 weight that it rounds to and 16 bits beside it: the decision for
// one element, for host and device. The vector loops are in cpu/split.inl.
//
// Note [Split masters]: the weight is the master rounded to nearest even, and the remainder is the
// master's bits minus the weight's, moved up by 16: the master's low half, read as a signed number.
// An even weight is what the tie above it and the tie below it both round to, so its remainder goes
// from -2^15 to 2^15: one number more than 16 bits can tell apart. Both ties are therefore stored
// as -2^15, and a mask with one bit an element says which of them it is. The mask is read and
// written for remainders of -2^15 only (one element in 65,536), so that the loops hardly touch it;
// at other elements its bits mean nothing. Rounding ties up would need no mask, but would give
// other weights than bfloat16 training with float masters has.
//
// Every number, the infinities and both zeros come back to the bit. A NaN comes back as the quiet
// NaN of its sign.
//
// Someone may write weights without their remainders. A weight then stands for a number within half
// a unit of itself: remainders that would carry it beyond zero or infinity count as zero, so that
// no NaN can come of it.
#pragma once

#include <cstdint>

#include "kernels/elements.h"

namespace mezzo::kernels {

struct SplitMaster {
  std::uint16_t weight;     // bfloat16's bits
  std::uint16_t remainder;  // a signed number's bits
  bool tie_above;           // means something where the remainder is kTie
};

/// The remainder of both ties: -2^15.
inline constexpr std::uint16_t kTie = 0x8000;
inline constexpr std::uint16_t kQuietNan = 0x7fc0;

/// The bits of a float, split.
MEZZO_HD static inline SplitMaster split_master(std::uint32_t master) {
  if ((master & 0x7fffffffu) > 0x7f800000u) {
    return {kQuietNan, static_cast<std::uint16_t>((master >> 16) & 0x8000u), false};
  }
  const auto weight = static_cast<std::uint16_t>((master + 0x7fffu + ((master >> 16) & 1u)) >> 16);
  const auto remainder = static_cast<std::uint16_t>(master & 0xffffu);
  return {weight, remainder, remainder == kTie && weight == master >> 16};
}

/// The bits of the float again.
MEZZO_HD static inline std::uint32_t join_master(const SplitMaster& split) {
  const std::uint32_t weight = static_cast<std::uint32_t>(split.weight) << 16;
  const std::uint32_t magnitude = split.weight & 0x7fffu;
  const bool is_tie = split.remainder == kTie;
  if (magnitude > 0x7f80u) {
    return is_tie && split.weight == kQuietNan ? weight | 0x80000000u : weight;
  }
  const bool above = is_tie ? split.tie_above : split.remainder < kTie && split.remainder != 0;
  const bool below = split.remainder != 0 && !above;
  // Beyond infinity or zero: the weight was written since.
  if ((above && magnitude == 0x7f80u) || (below && magnitude == 0)) return weight;
  if (is_tie) return above ? weight + 0x8000u : weight - 0x8000u;
  const std::uint32_t up = weight + split.remainder;
  return above ? up : up - (below ? 0x10000u : 0u);
}

/// The mask of ties: 32 elements a word.
MEZZO_HD static inline std::int64_t words_of_ties(std::int64_t count) {
  return (count + 31) / 32;
}

}  // namespace mezzo::kernels
