// How two outputs differ.
#pragma once

#include <string>
#include <vector>

#include "convert/engine/difference.h"
#include "convert/onnx/array.h"
#include "mezzo/convert.h"

namespace mezzo::convert {

/// Compares `got` with `reference`, of the same shape; another shape counts as not finite. Top-1
/// agreement and KL divergence are over rows of the last dimension. If both are infinite or NaN
/// alike, they agree.
OutputError compare_outputs(const std::string& name, const Array& reference, const Array& got);

/// The worse of two, number by number.
OutputError worse(const OutputError&, const OutputError&);

/// Per sample, per output.
using SampleErrors = std::vector<std::vector<OutputError>>;

/// Per output, the worst over the samples, number by number.
std::vector<OutputError> worst_of(const SampleErrors&);

/// Per output, what this share of the samples, at least, does not exceed, number by number (nearest
/// rank).
std::vector<OutputError> quantile_of(const SampleErrors&, double share);

}  // namespace mezzo::convert
