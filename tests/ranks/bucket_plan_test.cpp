#include "ranks/bucket_plan.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

namespace mezzo::ranks {
namespace {

using testing::ElementsAre;

std::vector<int> members(const BucketPlan& plan, std::size_t bucket) {
  return plan.buckets.at(bucket).parameters;
}

TEST(BucketPlan, ClosesABucketAtTheMessageSize) {
  const std::vector<PlannedParameter> parameters{{10}, {5}, {5}, {1}};
  const BucketPlan plan = plan_buckets(parameters, std::vector<int>{3, 2, 1, 0}, 10);
  ASSERT_EQ(plan.buckets.size(), 2U);
  EXPECT_THAT(members(plan, 0), ElementsAre(3, 2, 1));
  EXPECT_EQ(plan.buckets[0].elements, 11);
  EXPECT_THAT(members(plan, 1), ElementsAre(0));
  EXPECT_THAT(plan.bucket_of, ElementsAre(1, 0, 0, 0));
}

TEST(BucketPlan, KeepsKindsApartAndCountsThemApart) {
  const std::vector<PlannedParameter> parameters{{4, 0}, {4, 1}, {4, 0}, {4, 1}, {4, 0}};
  const BucketPlan plan = plan_buckets(parameters, std::vector<int>{0, 1, 2, 3, 4}, 8);
  ASSERT_EQ(plan.buckets.size(), 3U);
  EXPECT_THAT(members(plan, 0), ElementsAre(0, 2));
  EXPECT_THAT(members(plan, 1), ElementsAre(1, 3));
  EXPECT_THAT(members(plan, 2), ElementsAre(4));
}

TEST(BucketPlan, ATriggerClosesItsBucketAndTheSizeIsIgnored) {
  const std::vector<PlannedParameter> parameters{{100}, {100}, {1, 0, true}, {100}};
  const BucketPlan plan = plan_buckets(parameters, std::vector<int>{0, 1, 2, 3}, 1);
  ASSERT_EQ(plan.buckets.size(), 2U);
  EXPECT_THAT(members(plan, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(members(plan, 1), ElementsAre(3));
}

TEST(BucketPlan, GradientsBeginWhereWidePiecesMayBegin) {
  const std::vector<PlannedParameter> parameters{{10}, {32}, {0}, {17}, {1}};
  const BucketPlan plan = plan_buckets(parameters, std::vector<int>{0, 1, 2, 3, 4}, 1000);
  ASSERT_EQ(plan.buckets.size(), 1U);
  EXPECT_THAT(plan.buckets[0].offsets, ElementsAre(0, 16, 48, 48, 80));
  EXPECT_EQ(plan.buckets[0].elements, 60);
  EXPECT_EQ(plan.buckets[0].size, 96);
}

TEST(BucketPlan, WhatLiesBetweenGradientsDoesNotCountForTheMessageSize) {
  const std::vector<PlannedParameter> parameters{{1}, {1}, {1}, {1}};
  const BucketPlan plan = plan_buckets(parameters, std::vector<int>{0, 1, 2, 3}, 3);
  ASSERT_EQ(plan.buckets.size(), 2U);
  EXPECT_THAT(members(plan, 0), ElementsAre(0, 1, 2));
}

TEST(BucketPlan, NothingGivesNothing) {
  EXPECT_TRUE(plan_buckets({}, {}, 10).buckets.empty());
}

TEST(BucketPlan, HoldsEveryParameterOnceWhateverTheOrderAndSizes) {
  std::mt19937 random(20261121);
  for (int trial = 0; trial < 200; ++trial) {
    const int count = static_cast<int>(random() % 40);
    std::vector<PlannedParameter> parameters;
    for (int i = 0; i < count; ++i) {
      parameters.push_back({static_cast<std::int64_t>(random() % 1000),
                            static_cast<int>(random() % 3), trial % 4 == 0 && random() % 5 == 0});
    }
    std::vector<int> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    const BucketPlan plan =
        plan_buckets(parameters, order, static_cast<std::int64_t>(random() % 3000));
    std::vector<int> seen(static_cast<std::size_t>(count), 0);
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      const Bucket& bucket = plan.buckets[b];
      EXPECT_FALSE(bucket.parameters.empty());
      std::int64_t elements = 0;
      std::int64_t end = 0;
      ASSERT_EQ(bucket.offsets.size(), bucket.parameters.size());
      for (std::size_t place = 0; place < bucket.parameters.size(); ++place) {
        const auto i = static_cast<std::size_t>(bucket.parameters[place]);
        EXPECT_EQ(bucket.offsets[place] % kGradientAlignment, 0);
        EXPECT_GE(bucket.offsets[place], end);
        EXPECT_LT(bucket.offsets[place], end + kGradientAlignment);
        end = bucket.offsets[place] + parameters[i].elements;
        ++seen[i];
        elements += parameters[i].elements;
        EXPECT_EQ(parameters[i].kind, bucket.kind);
        EXPECT_EQ(plan.bucket_of[i], static_cast<int>(b));
      }
      EXPECT_EQ(elements, bucket.elements);
      EXPECT_GE(bucket.size, end);
    }
    EXPECT_THAT(seen, testing::Each(1)) << "trial " << trial;
  }
}

}  // namespace
}  // namespace mezzo::ranks
