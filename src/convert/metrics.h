// How two outputs differ.
#pragma once

#include <string>
#include <vector>

#include "convert/array.h"
#include "mezzo/convert.h"

namespace mezzo::convert {

/// Compares `got` with `reference`, of the same shape; another shape counts as not finite. Top-1
/// agreement is over rows of the last dimension. Where both are infinite or NaN alike, they agree.
OutputError compare_outputs(const std::string& name, const Array& reference, const Array& got);

/// The worse of two, number by number.
OutputError worse(const OutputError&, const OutputError&);

}  // namespace mezzo::convert
