// A flat gradient's way between ranks and back.
//
// Half and bfloat16 travel as what they are and are summed in float with one rounding: Gloo adds in
// the low type, and its average of 40000 in half is infinite.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "distributed/lane.h"

namespace mezzo::parallel {

/// Factors around the sum. Their product is 1/size for an average.
struct AverageScale {
  double before = 1.0;  // on what is sent
  double after = 1.0;   // on the sum
};

constexpr AverageScale average_scale(int size) {
  return {1.0, 1.0 / size};
}

/// How a flat tensor travels.
enum class Wire {
  kDirect,  // summed by the transport in its own type
  kGather,  // low type, every rank sums what all gave in float: one rounding, same bits everywhere
  kFloat,   // as float: where a gather would move more bytes
};

/// A ring all-reduce of floats moves 8 (size - 1) / size bytes per element and direction, a gather
/// of a low type 2 (size - 1): half at 2 ranks, equal at 4, where the gather's fewer steps win as
/// long as there is little to move (measured by `./run bench distributed`).
constexpr Wire choose_wire(bool low_type, int size, bool always_float, std::int64_t elements) {
  constexpr std::int64_t kLittle = 256 * 1024;
  if (!low_type || size == 1) return Wire::kDirect;
  const bool gathers = size == 2 || (size <= 4 && elements <= kLittle);
  return always_float || !gathers ? Wire::kFloat : Wire::kGather;
}

/// Elements of one part of a gather: equal parts, the last one smaller.
constexpr std::int64_t gather_part(std::int64_t elements, bool on_cpu) {
  constexpr std::int64_t kPart = 2 * 1024 * 1024;  // smaller ones cost more calls than they save
  if (!on_cpu || elements <= kPart) return std::max<std::int64_t>(elements, 1);
  const std::int64_t parts = (elements + kPart - 1) / kPart;
  return (elements + parts - 1) / parts;
}

/// Starts before * ... * after of the sum over ranks, in place. `flat`: contiguous, one dimension,
/// a floating type; complete at the wait.
std::unique_ptr<Pending> start_average(Lane& lane, const at::Tensor& flat, AverageScale scale,
                                       bool always_float = false);

/// The same with `type` on the wire in place of the tensor's own: half the bytes, with a rounding
/// before the sum and, where no gather is chosen, in it. A tensor that is no wider than `type`
/// travels as it is.
std::unique_ptr<Pending> start_compressed_average(Lane& lane, const at::Tensor& flat,
                                                  AverageScale scale, at::ScalarType type);

}  // namespace mezzo::parallel
