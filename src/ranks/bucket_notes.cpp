#include "ranks/bucket_notes.h"

#include <set>

namespace mezzo::ranks {
namespace {

// Sums come back through the gradients' type and factors: nearly whole numbers.
bool said_by_somebody(double sum) {
  return sum > 0.5;
}

}  // namespace

std::vector<double> bucket_notes(const Bucket& bucket, const std::vector<bool>& used,
                                 std::optional<int> nonfinite_rank, int ranks) {
  std::vector<double> notes;
  for (int parameter : bucket.parameters) {
    notes.push_back(used[static_cast<std::size_t>(parameter)] ? 1 : 0);
  }
  for (int rank = 0; rank < ranks; ++rank) notes.push_back(rank == nonfinite_rank ? 1 : 0);
  notes.push_back(0);
  return notes;
}

std::vector<double> substitute_notes(const Bucket& bucket, int ranks, bool broke_off) {
  std::vector<double> notes(static_cast<std::size_t>(note_count(bucket, ranks)), 0.0);
  notes.back() = broke_off ? 1 : 0;
  return notes;
}

BucketReport read_bucket_notes(const BucketPlan& plan, const std::vector<double>& sums, int ranks) {
  BucketReport report;
  report.users.assign(plan.bucket_of.size(), 0);
  std::set<int> nonfinite;
  auto next = sums.begin();
  for (const Bucket& bucket : plan.buckets) {
    for (int parameter : bucket.parameters) {
      report.users[static_cast<std::size_t>(parameter)] = *next++;
    }
    for (int rank = 0; rank < ranks; ++rank) {
      if (said_by_somebody(*next++)) nonfinite.insert(rank);
    }
    report.broke_off = said_by_somebody(*next++) || report.broke_off;
  }
  report.nonfinite_ranks.assign(nonfinite.begin(), nonfinite.end());
  return report;
}

}  // namespace mezzo::ranks
