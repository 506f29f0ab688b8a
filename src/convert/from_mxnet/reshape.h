// MXNet's Reshape, whose codes say more than ONNX's.
#pragma once

#include <cstdint>
#include <vector>

#include "convert/from_mxnet/onnx_writer.h"

namespace mezzo::convert::mxnet {

/// One size of a result: a number, the rest of the elements, or a product of sizes of the input.
struct TargetSize {
  enum class Kind : std::uint8_t { kNumber, kRest, kOfInput };
  Kind kind = Kind::kNumber;
  std::int64_t number = 1;             ///< of kNumber
  std::vector<std::size_t> axes = {};  ///< of kOfInput: the product of the sizes of these axes
};

/// Takes the codes apart: 0 copies a size, -1 is the rest, -2 copies all that are left, -3 is the
/// product of two, -4 A B splits one in two. `rank`: of the input, or nothing where it is not
/// known, which some codes do not need. Throws ConfigError, saying what is wrong, where the codes
/// do not fit.
std::vector<TargetSize> target_sizes(const Dims& codes, std::optional<std::size_t> rank,
                                     const std::optional<Dims>& dims);

}  // namespace mezzo::convert::mxnet
