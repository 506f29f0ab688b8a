#include "ranks/overflow_origin.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ranks/rank_list.h"

namespace mezzo::ranks {
namespace {

TEST(OverflowOrigin, TheMaximumTellsTheLowestRankAndItsPlace) {
  for (const int size : {1, 2, 3, 64, 100'000}) {
    for (const int rank : {0, size / 2, size - 1}) {
      for (const std::int64_t place : {0LL, 1LL, 4'294'967'293LL}) {
        double maximum = 0;
        for (int other = rank; other < std::min(size, rank + 5); ++other) {
          maximum = std::max(maximum, overflow_number({other, place + (other - rank)}, size));
        }
        EXPECT_EQ(overflow_origin(maximum, size), (OverflowOrigin{rank, place}))
            << rank << " of " << size;
      }
    }
  }
}

TEST(OverflowOrigin, ARankMayNotKnowThePlace) {
  EXPECT_EQ(overflow_origin(overflow_number({3, std::nullopt}, 4), 4),
            (OverflowOrigin{3, std::nullopt}));
  EXPECT_EQ(overflow_origin(overflow_number({3, std::int64_t{1} << 40}, 4), 4),
            (OverflowOrigin{3, std::nullopt}));
}

TEST(OverflowOrigin, NobodysOverflowIsNone) {
  EXPECT_EQ(overflow_origin(0, 4), std::nullopt);
}

TEST(RankList, NamesRanks) {
  EXPECT_EQ(listed({}), "");
  EXPECT_EQ(listed({3}), "3");
  EXPECT_EQ(listed({0, 2, 11}), "0, 2, 11");
}

}  // namespace
}  // namespace mezzo::ranks
