#include "imagenet/data/sampler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

namespace examples::imagenet {
namespace {

using testing::ElementsAre;

TEST(TrainingOrder, HasEachImageOnceAndFollowsFromSeedAndEpoch) {
  const auto order = training_order(1000, 1, 0, {});
  auto sorted = order;
  std::ranges::sort(sorted);
  for (std::int64_t i = 0; i < 1000; ++i) ASSERT_EQ(sorted[static_cast<std::size_t>(i)], i);
  EXPECT_NE(order, sorted);
  EXPECT_EQ(order, training_order(1000, 1, 0, {}));
  EXPECT_NE(order, training_order(1000, 1, 1, {}));
  EXPECT_NE(order, training_order(1000, 2, 0, {}));
}

TEST(TrainingOrder, IsDealtToRanksInEqualParts) {
  std::map<std::int64_t, int> seen;
  for (int rank = 0; rank < 3; ++rank) {
    const auto mine = training_order(10, 1, 0, {rank, 3});
    EXPECT_EQ(mine.size(), 4U);
    for (const std::int64_t image : mine) ++seen[image];
  }
  EXPECT_EQ(seen.size(), 10U);  // two of them twice
  const auto all = training_order(10, 1, 0, {});
  EXPECT_EQ(training_order(10, 1, 0, {1, 2})[2], all[5]);
}

TEST(EvaluationOrder, HasEachImageOnceOverAllRanks) {
  EXPECT_THAT(evaluation_order(7, {0, 3}), ElementsAre(0, 3, 6));
  EXPECT_THAT(evaluation_order(7, {1, 3}), ElementsAre(1, 4));
  EXPECT_THAT(evaluation_order(7, {2, 3}), ElementsAre(2, 5));
  EXPECT_THAT(evaluation_order(1, {1, 2}), ElementsAre());
}

TEST(TrainingSteps, LeaveAnIncompleteBatchOutUnlessItIsAllThereIs) {
  EXPECT_EQ(training_steps(100, 10, 1), 10);
  EXPECT_EQ(training_steps(109, 10, 1), 10);
  EXPECT_EQ(training_steps(9, 10, 1), 1);
  EXPECT_EQ(training_steps(109, 10, 2), 5);
}

}  // namespace
}  // namespace examples::imagenet
