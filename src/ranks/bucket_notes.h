// Notes behind a bucket's gradients, which so cost no collective of their own: for each
// parameter "it has a gradient here", for each rank "something was not finite here", and for all of
// them "a backward broke off". Each is 1 or 0, and the sum over the ranks is read.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ranks/bucket_plan.h"

namespace mezzo::ranks {

inline std::int64_t note_count(const Bucket& bucket, int ranks) {
  return static_cast<std::int64_t>(bucket.parameters.size()) + ranks + 1;
}

/// `used` of all parameters; `nonfinite_rank` is this rank, where a gradient was not finite.
std::vector<double> bucket_notes(const Bucket& bucket, const std::vector<bool>& used,
                                 std::optional<int> nonfinite_rank, int ranks);

/// The notes of a rank that has no gradients to give, perhaps because its backward broke off.
std::vector<double> substitute_notes(const Bucket& bucket, int ranks, bool broke_off);

/// The ranks' notes, summed up.
struct BucketReport {
  std::vector<double> users;         // of each parameter: ranks that have a gradient
  std::vector<int> nonfinite_ranks;  // ascending
  bool broke_off = false;
};

/// Reads the sums of the notes on all buckets, one after the other.
BucketReport read_bucket_notes(const BucketPlan& plan, const std::vector<double>& sums, int ranks);

}  // namespace mezzo::ranks
