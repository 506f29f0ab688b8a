// The search for what must stay float32: what it finds, and how often it asks.
#include "convert/judge/search.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <numeric>

#include "corpus.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> nodes(std::size_t count) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back("n" + std::to_string(1000 + i));
  return all;
}

class Search : public testing::Test {
 protected:
  void SetUp() override { folder_ = scratch_folder("search"); }

  // Fits where all culprits are kept.
  static double error_of(const NodeSet& culprits, const NodeSet& kept) {
    return std::ranges::includes(kept, culprits) ? 0 : 1;
  }
  // A search among nodes of which `culprits` are needed.
  template <typename Run>
  SearchQuestions searched(const NodeSet& culprits, SearchBudget budget, const Run& run) {
    SearchJournal journal(folder_ / ("journal" + std::to_string(++searches_)), 1);
    SearchQuestions questions(journal, budget, 0.5,
                              [=](const NodeSet& kept) { return error_of(culprits, kept); });
    run(questions);
    return questions;
  }

  fs::path folder_;
  int searches_ = 0;
};

TEST_F(Search, BothWaysFindTheCulpritsAndNothingElse) {
  const std::vector<std::string> all = nodes(100);
  // No order helps against culprits that come last in it.
  std::vector<std::string> backwards = all;
  std::ranges::reverse(backwards);
  for (const NodeSet& culprits :
       {NodeSet{}, NodeSet{all[0]}, NodeSet{all[99]}, NodeSet{all[3], all[50], all[51], all[80]}}) {
    const SearchQuestions borders = searched(
        culprits, {200}, [&](SearchQuestions& questions) { search_by_borders(all, questions); });
    EXPECT_EQ(borders.smallest(), culprits);
    for (const auto& order : {all, backwards}) {
      const SearchQuestions ranked = searched(culprits, {200}, [&](SearchQuestions& questions) {
        search_by_rank(order, 0, questions);
      });
      EXPECT_EQ(ranked.smallest(), culprits);
      EXPECT_LE(ranked.attempts(), 60);
      EXPECT_FALSE(ranked.is_uneven());
    }
  }
}

// A node that ranks high is found with fewer questions than borders need.
TEST_F(Search, AGoodOrderSavesQuestions) {
  const std::vector<std::string> all = nodes(200);
  for (const std::size_t count : {1U, 2U, 5U, 12U}) {
    NodeSet culprits;
    for (std::size_t i = 0; i < count; ++i) culprits.insert(all[(i * 37 + 11) % all.size()]);
    std::vector<std::string> ranked(culprits.begin(), culprits.end());
    for (const std::string& node : all) {
      if (!culprits.contains(node)) ranked.push_back(node);
    }
    const int by_borders = searched(culprits, {500}, [&](SearchQuestions& q) {
                             search_by_borders(all, q);
                           }).attempts();
    const int by_rank = searched(culprits, {500}, [&](SearchQuestions& q) {
                          search_by_rank(ranked, 0, q);
                        }).attempts();
    const int with_suspects = searched(culprits, {500}, [&](SearchQuestions& q) {
                                search_by_rank(ranked, count, q);
                              }).attempts();
    std::printf("%zu culprits of 200: %d questions by borders, %d by rank, %d with suspects\n",
                count, by_borders, by_rank, with_suspects);
    EXPECT_LT(by_rank, by_borders);
    EXPECT_LE(with_suspects, by_rank + 2);
  }
}

TEST_F(Search, EndsByItsBudgetWithTheSmallestThatFits) {
  const std::vector<std::string> all = nodes(64);
  const NodeSet culprits{all[5], all[40]};
  const auto ranked = [&](SearchQuestions& questions) { search_by_rank(all, 0, questions); };
  const SearchQuestions whole = searched(culprits, {200}, ranked);
  EXPECT_EQ(whole.ended_by(), "");
  const SearchQuestions cut = searched(culprits, {12}, ranked);
  EXPECT_EQ(cut.ended_by(), "attempts");
  EXPECT_EQ(cut.attempts(), 12);
  ASSERT_TRUE(cut.smallest());
  EXPECT_GT(cut.smallest()->size(), 2U);
  EXPECT_EQ(error_of(culprits, *cut.smallest()), 0);
  EXPECT_FALSE(searched(culprits, {2}, ranked).smallest());
  EXPECT_EQ(searched(culprits, {200, 1e-9}, ranked).ended_by(), "time limit");
  // Exactly enough is no end by the budget.
  EXPECT_EQ(searched(culprits, {whole.attempts()}, ranked).ended_by(), "");
}

TEST_F(Search, GoesOnWhereTheJournalStopped) {
  const std::vector<std::string> all = nodes(64);
  const NodeSet culprits{all[5], all[40]};
  const auto search = [&](int budget) {
    SearchJournal journal(folder_ / "journal", 7);
    SearchQuestions questions(journal, {budget}, 0.5,
                              [&](const NodeSet& kept) { return error_of(culprits, kept); });
    search_by_borders(all, questions);
    return questions;
  };
  const SearchQuestions first = search(6);
  EXPECT_EQ(first.attempts(), 6);
  const SearchQuestions second = search(500);
  EXPECT_EQ(second.smallest(), culprits);
  EXPECT_EQ(search(500).attempts(), 0);
}

TEST_F(Search, TellsWhereMoreFloatIsWorse) {
  const std::vector<std::string> all = nodes(8);
  SearchJournal journal(folder_ / "journal", 1);
  SearchQuestions questions(journal, {50}, 0.5, [&](const NodeSet& kept) {
    return kept.size() == 1 && kept.contains(all[0]) ? 0 : 1;
  });
  EXPECT_TRUE(questions.fits({all[0]}));
  EXPECT_FALSE(questions.is_uneven());
  EXPECT_FALSE(questions.fits({all[0], all[1]}));
  EXPECT_TRUE(questions.is_uneven());
}

}  // namespace
}  // namespace mezzo::convert
