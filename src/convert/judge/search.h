// The search for what must stay float32 so that a result is good enough.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mezzo::convert {

/// Nodes by their keys in a plan.
using NodeSet = std::set<std::string>;

/// The judgements of a search so far, in a file beside the target: a search that was interrupted,
/// or ran out of its budget, goes on where it stopped.
class SearchJournal {
 public:
  /// Reads `path`, and drops verdicts for another `purpose` (model, options, samples).
  SearchJournal(std::filesystem::path path, std::uint64_t purpose);

  std::optional<double> find(const NodeSet& kept) const;
  void add(const NodeSet& kept, double error);
  std::size_t size() const { return errors_.size(); }
  /// The search is over: removes the file.
  void close();

 private:
  std::filesystem::path path_;
  std::uint64_t purpose_;
  std::map<std::uint64_t, double> errors_;  // by the hash of the set
};

/// How much a search may ask. Verdicts from the journal are free.
struct SearchBudget {
  int attempts = 80;
  std::optional<double> seconds = {};
};

/// The questions of one search, each a set of nodes that stay float32, with their answers.
class SearchQuestions {
 public:
  /// `judge` gives a set's error, which is to be at most `tolerance`.
  SearchQuestions(SearchJournal& journal, SearchBudget budget, double tolerance,
                  std::function<double(const NodeSet&)> judge);

  /// Is the error small enough? Asks the judge where the journal does not know.
  bool fits(const NodeSet& kept);
  /// Is there budget for another question? Asked only where the search has one.
  bool may_go_on();

  /// How often the judge was asked.
  int attempts() const { return attempts_; }
  /// The share of the budget of attempts that is used up, counting a question that is being asked.
  double share() const;
  /// "attempts" or "time limit", where may_go_on() had to end the search; otherwise empty.
  std::string_view ended_by() const { return ended_by_; }
  /// The smallest set that fits, of all that were asked about; the first of equal ones.
  const std::optional<NodeSet>& smallest() const { return smallest_; }
  /// Did a set fit although a larger one around it did not?
  bool is_uneven() const { return is_uneven_; }

 private:
  void note(const NodeSet& kept, bool fits);

  SearchJournal& journal_;
  SearchBudget budget_;
  double tolerance_;
  std::function<double(const NodeSet&)> judge_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  int attempts_ = 0;
  std::string_view ended_by_;
  std::vector<std::pair<NodeSet, bool>> asked_;
  std::optional<NodeSet> smallest_;
  bool is_uneven_ = false;
};

/// Searches a small set that fits; none of its parts that was tried can go. Stops when the budget
/// ends. The result is the questions' smallest().
///
/// `candidates` are the low nodes in order of evaluation. Borders find single culprits by
/// bisection; group testing, as in Zeller's delta debugging, then gives back what turns out not to
/// be needed.
void search_by_borders(const std::vector<std::string>& candidates, SearchQuestions&);

/// As above, where it is known how much each node is to blame: `ranked` are the low nodes, worst
/// first, and the first `suspects` of them are expected to be needed. Exponential and binary search
/// over "the first k stay float32", then group testing as above.
void search_by_rank(const std::vector<std::string>& ranked, std::size_t suspects, SearchQuestions&);

}  // namespace mezzo::convert
