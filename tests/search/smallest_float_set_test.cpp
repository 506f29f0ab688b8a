// The set that must stay in float: how it is found, how often the judge is asked, and what a file
// remembers.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "mezzo/error.h"
#include "mezzo/insight_search.h"

namespace mezzo::insight {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Names = std::vector<std::string>;

Names layers(int count) {
  Names all;
  for (int i = 0; i < count; ++i) all.push_back("layer" + std::to_string(i));
  return all;
}

bool holds(const Names& kept, const std::string& name) {
  return std::ranges::find(kept, name) != kept.end();
}

/// Good where all of `culprits` are kept; remembers what it was asked.
struct Judge {
  Names culprits;
  std::vector<Names> asked = {};
  bool operator()(const Names& kept) {
    asked.push_back(kept);
    return std::ranges::all_of(culprits, [&](const auto& name) { return holds(kept, name); });
  }
};

FloatSet searched(Judge& judge, int count, SearchOptions options = {}) {
  return smallest_float_set(layers(count), std::ref(judge), std::move(options));
}

TEST(SmallestFloatSet, FindsTheCulpritsInTheCandidatesOrder) {
  Judge judge{{"layer11", "layer2", "layer63"}};
  const FloatSet set = searched(judge, 64);
  EXPECT_THAT(set.names, ElementsAre("layer2", "layer11", "layer63"));
  EXPECT_TRUE(set.complete);
  EXPECT_EQ(set.judgements, static_cast<int>(judge.asked.size()));
  EXPECT_LE(set.judgements, 2 * 3 * 6 + 2 + 3) << "about 2 k log2(n)";
}

TEST(SmallestFloatSet, AsksOnceWhereNothingIsNeeded) {
  Judge judge;
  const FloatSet set = searched(judge, 8);
  EXPECT_THAT(set.names, IsEmpty());
  EXPECT_TRUE(set.complete);
  EXPECT_EQ(set.judgements, 1);
}

TEST(SmallestFloatSet, GivesUpAfterTwoJudgementsWhereEvenAllDoNotHelp) {
  Judge judge{{"another"}};
  const FloatSet set = searched(judge, 100);
  EXPECT_THAT(set.names, IsEmpty());
  EXPECT_FALSE(set.complete);
  EXPECT_EQ(set.judgements, 2);
}

TEST(SmallestFloatSet, TakesNoCandidatesAndOneAndAll) {
  Judge nothing_helps{{"layer0"}};
  EXPECT_FALSE(searched(nothing_helps, 0).complete);
  EXPECT_EQ(nothing_helps.asked.size(), 1U) << "none and all are the same set";
  Judge one{{"layer0"}};
  EXPECT_THAT(searched(one, 1).names, ElementsAre("layer0"));
  Judge all{layers(7)};
  EXPECT_EQ(searched(all, 7).names, layers(7));
}

// Any function of the set, monotone or not: good for the full set, otherwise by a hash.
TEST(SmallestFloatSet, IsMinimalAndAsksNothingTwiceWhateverTheJudgeSays) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Names candidates = layers(static_cast<int>(seed % 9) + 1);
    const auto good = [&](const Names& kept) {
      if (kept.size() == candidates.size()) return true;
      std::seed_seq mixed{seed, static_cast<unsigned>(std::hash<std::string>()([&] {
                            std::string text;
                            for (const auto& name : kept) text += name + ' ';
                            return text;
                          }()))};
      std::mt19937 random(mixed);
      return !kept.empty() && random() % 3 == 0;
    };
    std::set<Names> asked;
    const FloatSet set = smallest_float_set(candidates, [&](const Names& kept) {
      EXPECT_TRUE(asked.insert(kept).second) << "asked twice, seed " << seed;
      return good(kept);
    });
    ASSERT_TRUE(set.complete);
    EXPECT_TRUE(good(set.names)) << "seed " << seed;
    for (const std::string& name : set.names) {
      Names rest = set.names;
      std::erase(rest, name);
      EXPECT_FALSE(good(rest)) << name << " can go, seed " << seed;
    }
  }
}

TEST(SmallestFloatSet, AsksTheSameQuestionsEachTime) {
  Judge once{{"layer3", "layer17"}}, again = once;
  searched(once, 20);
  searched(again, 20);
  EXPECT_EQ(once.asked, again.asked);
}

TEST(SmallestFloatSet, LetsTheJudgesExceptionOut) {
  const auto throws = [](const Names&) -> bool { throw std::runtime_error("the judge is ill"); };
  EXPECT_THROW(smallest_float_set(layers(3), throws), std::runtime_error);
}

TEST(SmallestFloatSet, RefusesWhatItCannotSearch) {
  Judge judge;
  EXPECT_THROW(smallest_float_set({"a", "b", "a"}, std::ref(judge)), ConfigError);
  EXPECT_THROW(smallest_float_set({"a"}, nullptr), ConfigError);
  EXPECT_THROW(searched(judge, 2, {.max_judgements = 0}), ConfigError);
  EXPECT_THAT(judge.asked, IsEmpty());
}

class FloatSetJournal : public testing::Test {
 protected:
  FloatSetJournal() { std::filesystem::remove(file_); }
  ~FloatSetJournal() override { std::filesystem::remove(file_); }

  std::filesystem::path file_ = std::filesystem::path(testing::TempDir()) /
                                ("mezzo_search_" + std::to_string(getpid()) + ".txt");
};

TEST_F(FloatSetJournal, GoesOnWhereTheBudgetEndedIt) {
  Judge whole{{"layer5", "layer40"}};
  const FloatSet reference = searched(whole, 48);
  int judgements = 0;
  std::set<Names> asked;
  FloatSet set;
  for (int call = 0; call < 100 && !set.complete; ++call) {
    Judge judge{whole.culprits};
    set = searched(judge, 48, {.journal = file_, .max_judgements = 3});
    EXPECT_LE(set.judgements, 3);
    judgements += set.judgements;
    for (const Names& kept : judge.asked) EXPECT_TRUE(asked.insert(kept).second);
  }
  EXPECT_EQ(set.names, reference.names);
  EXPECT_EQ(judgements, reference.judgements);
  EXPECT_FALSE(std::filesystem::exists(file_)) << "the search is over";
}

TEST_F(FloatSetJournal, KeepsTheAnswersBeforeAnException) {
  int left = 5;
  Judge judge{{"layer9"}};
  const auto dies = [&](const Names& kept) {
    if (left-- == 0) throw std::runtime_error("interrupted");
    return judge(kept);
  };
  EXPECT_THROW(smallest_float_set(layers(16), dies, {.journal = file_}), std::runtime_error);
  Judge rest{{"layer9"}};
  EXPECT_THAT(searched(rest, 16, {.journal = file_}).names, ElementsAre("layer9"));
  for (const Names& kept : rest.asked) EXPECT_FALSE(std::ranges::count(judge.asked, kept));
}

TEST_F(FloatSetJournal, DropsAnswersForAnotherPurposeAndCutOffLines) {
  Judge judge{{"layer1"}};
  searched(judge, 4, {.journal = file_, .purpose = "a", .max_judgements = 2});
  Judge other{{"layer1"}};
  searched(other, 4, {.journal = file_, .purpose = "b", .max_judgements = 1});
  EXPECT_EQ(other.asked.size(), 1U) << "asked anew";
  std::ofstream(file_, std::ios::app) << "111";
  Judge third{{"layer1"}};
  const FloatSet set = searched(third, 4, {.journal = file_, .purpose = "b"});
  EXPECT_THAT(set.names, ElementsAre("layer1"));
  EXPECT_FALSE(std::ranges::count(third.asked, Names{})) << "that answer was kept";
}

TEST_F(FloatSetJournal, IsAnErrorWhereItCannotBeWritten) {
  Judge judge;
  EXPECT_THROW(searched(judge, 2, {.journal = "/nowhere/at/all/journal"}), Error);
}

}  // namespace
}  // namespace mezzo::insight
