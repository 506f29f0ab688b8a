// MXNet's Reshape, whose codes say more than ONNX's.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "convert/from_mxnet/call.h"

namespace mezzo::convert::mxnet {

/// One size of a result: a number, the rest of the elements, or a product of sizes of the input.
struct TargetSize {
  enum class Kind : std::uint8_t { kNumber, kRest, kOfInput };
  Kind kind = Kind::kNumber;
  std::int64_t number = 1;             ///< of kNumber
  std::vector<std::size_t> axes = {};  ///< of kOfInput: the product of the sizes of these axes
};

/// A code that MXNet has in numpy mode only: a size of 1 of the input is left out.
constexpr std::int64_t kSkipOne = std::numeric_limits<std::int64_t>::min();

/// Takes the codes apart: 0 copies a size, -1 is the rest, -2 copies all that are left, -3 is the
/// product of two, -4 A B splits one in two. `rank`: of the input, or nothing if it is not
/// known, which some codes do not need. Throws ConfigError, saying what is wrong, where the codes
/// do not fit.
std::vector<TargetSize> target_sizes(const Dims& codes, std::optional<std::size_t> rank,
                                     const std::optional<Dims>& dims);

/// The value in that shape.
Operand reshaped(Call& call, const Operand& x, const std::vector<TargetSize>& target);

/// The value in the shape that codes say, counted from the back under `is_reversed`.
Operand reshape_by_codes(Call& call, const Operand& x, Dims codes, bool is_reversed);

}  // namespace mezzo::convert::mxnet
