// How large the values of a tensor are, counted against the range of a type.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "core/dtype.h"
#include "core/torch.h"
#include "mezzo/events.h"

namespace mezzo::insight {

/// Sums, extremes and counts of values.
struct Tally {
  static constexpr int kLowest = -150;  // exponents below count here
  static constexpr int kHighest = 129;  // and those above here
  static constexpr int kBuckets = kHighest - kLowest + 1;

  std::int64_t count = 0;
  double squares = 0;                                         // of finite values
  double largest = 0;                                         // finite magnitude
  double smallest = std::numeric_limits<double>::infinity();  // that is not zero
  std::int64_t zeros = 0, subnormals = 0, saturated = 0, nans = 0;
  std::array<std::int64_t, kBuckets> exponents = {};

  void add(const Tally& other);
  report::Magnitudes magnitudes(const DTypeRow& type) const;
};

/// Counts in one pass over the memory of the host; other tensors are copied there.
Tally tally_on_host(const at::Tensor& values, const DTypeRow& type);

/// As above, by LibTorch's operators on the tensor's device, without waiting for it: numbers that
/// read_tally() understands.
at::Tensor tally_on_device(const at::Tensor& values, const DTypeRow& type);
Tally read_tally(const at::Tensor& numbers);

/// A tally that may still be on its device.
class PendingTally {
 public:
  PendingTally() = default;
  PendingTally(const at::Tensor& values, const DTypeRow& type);
  Tally read() const { return there_.defined() ? read_tally(there_) : here_; }

 private:
  Tally here_;
  at::Tensor there_;
};

}  // namespace mezzo::insight
