#include "ranks/bucket_notes.h"

#include <gtest/gtest.h>

namespace mezzo::ranks {
namespace {

BucketPlan plan_of_three() {
  const std::vector<PlannedParameter> parameters{{10, 0, false}, {20, 0, false}, {30, 0, false}};
  const std::vector<int> order{2, 1, 0};
  return plan_buckets(parameters, order, 50);
}

// The transport's sum of the ranks' notes.
std::vector<double> sum(const std::vector<std::vector<double>>& ranks) {
  std::vector<double> total(ranks.front().size(), 0);
  for (const auto& notes : ranks) {
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += notes[i];
  }
  return total;
}

std::vector<double> notes_of(const BucketPlan& plan, const std::vector<bool>& used,
                             std::optional<int> nonfinite, int ranks) {
  std::vector<double> all;
  for (const Bucket& bucket : plan.buckets) {
    const auto notes = bucket_notes(bucket, used, nonfinite, ranks);
    EXPECT_EQ(static_cast<std::int64_t>(notes.size()), note_count(bucket, ranks));
    all.insert(all.end(), notes.begin(), notes.end());
  }
  return all;
}

TEST(BucketNotes, CountTheUsersOfEachParameterAndNameRanks) {
  const BucketPlan plan = plan_of_three();
  ASSERT_EQ(plan.buckets.size(), 2U);
  const BucketReport report = read_bucket_notes(
      plan,
      sum({notes_of(plan, {true, true, false}, std::nullopt, 3),
           notes_of(plan, {true, false, false}, 1, 3), notes_of(plan, {true, true, false}, 2, 3)}),
      3);
  EXPECT_EQ(report.users, (std::vector<double>{3, 2, 0}));
  EXPECT_EQ(report.nonfinite_ranks, (std::vector<int>{1, 2}));
  EXPECT_FALSE(report.broke_off);
}

TEST(BucketNotes, ASubstituteTellsThatABackwardBrokeOffAndNothingElse) {
  const BucketPlan plan = plan_of_three();
  for (const bool broke_off : {false, true}) {
    std::vector<double> substitutes = notes_of(plan, {true, true, true}, std::nullopt, 2);
    substitutes.resize(static_cast<std::size_t>(note_count(plan.buckets[0], 2)));
    const auto last = substitute_notes(plan.buckets[1], 2, broke_off);
    substitutes.insert(substitutes.end(), last.begin(), last.end());
    const BucketReport report = read_bucket_notes(
        plan, sum({notes_of(plan, {true, true, true}, std::nullopt, 2), substitutes}), 2);
    EXPECT_EQ(report.broke_off, broke_off);
    EXPECT_TRUE(report.nonfinite_ranks.empty());
    for (int parameter : plan.buckets[0].parameters) EXPECT_EQ(report.users[parameter], 2);
    for (int parameter : plan.buckets[1].parameters) EXPECT_EQ(report.users[parameter], 1);
  }
}

}  // namespace
}  // namespace mezzo::ranks
