// How two outputs differ.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "convert/array.h"
#include "mezzo/convert.h"

namespace mezzo::convert {

/// Sums over pairs of numbers from which errors follow. Numbers that are not finite in the
/// reference count for nothing but `finite`.
struct Difference {
  double max_absolute = 0;
  double range = 0;  // the largest magnitude of the reference
  double signal = 0, noise = 0, product = 0, power = 0;
  bool finite = true;  // wherever the reference is; where both are infinite or NaN alike, too

  /// Both of one size.
  void add(std::span<const double> reference, std::span<const double> got);
  void add(std::span<const float> reference, std::span<const float> got);
  double relative_to_range() const;
  double sqnr_db() const;
  double cosine() const;
};

/// Compares `got` with `reference`, of the same shape; another shape counts as not finite. Top-1
/// agreement and KL divergence are over rows of the last dimension. Where both are infinite or NaN
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
