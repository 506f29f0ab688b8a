// A flat gradient's way between ranks and back.
//
// Half and bfloat16 travel as what they are and are summed in float with one rounding: Gloo adds in
// the low type, and its average of 40000 in half is infinite.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/lane.h"

namespace mezzo::parallel {

/// Factors around the sum. Their product is 1/size for an average.
struct AverageScale {
  double before = 1.0;  // on what is sent
  double after = 1.0;   // on the sum
};

constexpr AverageScale average_scale(int size) {
  return {1.0, 1.0 / size};
}

/// How a flat tensor travels. All but the first keep half and bfloat16 what they are, or make them
/// float; sums are in float with one rounding, and every rank gets the same bits.
enum class Wire {
  kDirect,  // summed by the transport in its own type
  kSwap,    // two ranks give each other all that they have
  kGather,  // every rank gets and sums what all have
  kShards,  // every rank gets and sums a part of what all have, and gives all the result
  kFloat,   // summed by the transport as float
};

/// The inputs of `choose_wire`.
struct WireCase {
  bool low_type = false;
  int size = 1;
  std::int64_t elements = 0;
  bool on_cpu = true;
  bool always_float = false;
};

/// Bytes per element that a rank sends, of a low type: a gather 2 (size - 1), and so does a swap;
/// shards 4 (size - 1) / size; a ring of floats 8 (size - 1) / size. Shards take two turns, a ring
/// 2 (size - 1): which is faster for how many elements is measured by `./run bench parallel`.
constexpr Wire choose_wire(const WireCase& given) {
  constexpr std::int64_t kLittle = std::int64_t{256} * 1024;
  if (!given.low_type || given.size == 1) return Wire::kDirect;
  if (given.always_float) return Wire::kFloat;
  if (given.size == 2) return given.on_cpu ? Wire::kSwap : Wire::kGather;
  if (given.size <= 4 && given.elements <= kLittle) return Wire::kGather;
  return given.on_cpu && given.elements > kLittle ? Wire::kShards : Wire::kFloat;
}

/// Elements of one part of what travels in parts: equal parts, the last one smaller.
constexpr std::int64_t gather_part(std::int64_t elements, bool on_cpu) {
  // Smaller parts cost more calls than they save.
  constexpr std::int64_t kPart = std::int64_t{2} * 1024 * 1024;
  if (!on_cpu || elements <= kPart) return std::max<std::int64_t>(elements, 1);
  const std::int64_t parts = (elements + kPart - 1) / kPart;
  return (elements + parts - 1) / parts;
}

/// How many elements each rank sums: equal shares, the first ranks take one more of what is left.
std::vector<std::int64_t> shards_of(std::int64_t elements, int size);

/// Starts before * ... * after of the sum over ranks, in place. `flat`: contiguous, one dimension,
/// a floating type; complete at the wait.
std::unique_ptr<Pending> start_average(Lane& lane, const at::Tensor& flat, AverageScale scale,
                                       bool always_float = false);

/// As above, by that way, which must fit: kSwap wants two ranks, all but kDirect a low type, and
/// kSwap and kShards memory of the processor.
std::unique_ptr<Pending> start_average_by(Wire wire, Lane& lane, const at::Tensor& flat,
                                          AverageScale scale);

/// As above, with `type` on the wire in place of the tensor's own: half the bytes, with a rounding
/// before the sum and, where shards are chosen, one after it; by the transport's own sum in `type`
/// where the choice is a float ring. A tensor that is no wider than `type` travels as it is, or as
/// float with `always_float`.
std::unique_ptr<Pending> start_compressed_average(Lane& lane, const at::Tensor& flat,
                                                  AverageScale scale, at::ScalarType type,
                                                  bool always_float = false);

}  // namespace mezzo::parallel
