// How two rows of numbers differ.
#pragma once

#include <span>

namespace mezzo::convert {

/// Sums over pairs of numbers from which errors follow. Numbers that are not finite in the
/// reference count for nothing but `finite`.
struct Difference {
  double max_absolute = 0;
  double range = 0;  // the largest magnitude of the reference
  double signal = 0, noise = 0, product = 0, power = 0;
  bool finite = true;  // wherever the reference is; where both are infinite or NaN alike too

  /// Both of one size.
  void add(std::span<const double> reference, std::span<const double> got);
  void add(std::span<const float> reference, std::span<const float> got);
  double relative_to_range() const;
  double sqnr_db() const;
  double cosine() const;
};

}  // namespace mezzo::convert
