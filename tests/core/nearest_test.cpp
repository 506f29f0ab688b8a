#include "core/nearest.h"

#include <gmock/gmock.h>

namespace mezzo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(EditDistance, CountsSingleChanges) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("softmax", "softmx"), 1U);
  EXPECT_EQ(edit_distance("softmax", "sotfmax"), 1U) << "two neighbours swapped are one change";
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("Linear", "linear"), 0U);
}

TEST(Nearest, PutsTheMostSimilarFirst) {
  const std::vector<std::string_view> names{"log", "softmin", "softmax", "softmax", "conv2d"};
  EXPECT_THAT(nearest("softmx", names), ElementsAre("softmax", "softmin"));
  EXPECT_THAT(nearest("conv2", names), ElementsAre("conv2d"));
  EXPECT_THAT(nearest("softmx", names, 1), ElementsAre("softmax"));
}

TEST(Nearest, LeavesOutWhatCannotBeMeant) {
  const std::vector<std::string_view> names{"log", "softmax"};
  EXPECT_THAT(nearest("multi_head", names), IsEmpty());
  EXPECT_THAT(nearest("", names), IsEmpty());
  EXPECT_THAT(nearest("xy", names), IsEmpty());
}

TEST(Nearest, FindsNamesThatGoOnWhereTheWordEnds) {
  const std::vector<std::string_view> names{"--nproc-per-node", "--nprocs", "--log-dir"};
  EXPECT_THAT(nearest("--nproc", names), ElementsAre("--nprocs", "--nproc-per-node"));
  EXPECT_THAT(nearest("--Nproc-per", names, 1), ElementsAre("--nproc-per-node"));
  EXPECT_THAT(nearest("--n", names), IsEmpty()) << "too little to tell";
}

TEST(DidYouMean, IsTheEndOfAMessage) {
  const std::vector<std::string_view> names{"softmin", "softmax"};
  EXPECT_EQ(did_you_mean("softmx", names), "; did you mean 'softmax' or 'softmin'?");
  EXPECT_EQ(did_you_mean("unrelated", names), "");
}

}  // namespace
}  // namespace mezzo
