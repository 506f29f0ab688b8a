// How operators of a 16-bit type are computed on processors: the question that every scope asks.
#pragma once

#include <c10/core/ScalarType.h>

namespace mezzo {

/// Are matrix operators of float16 or bfloat16 computed in float here? Cheap but for the first call
/// of a type, which measures. False for any other type. Thread-safe.
bool emulated(at::ScalarType low);

}  // namespace mezzo
