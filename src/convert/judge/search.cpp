#include "convert/judge/search.h"

#include <algorithm>
#include <deque>
#include <fstream>
#include <iterator>

#include "convert/onnx/hash.h"
#include "search/give_back.h"

namespace mezzo::convert {
namespace {

std::uint64_t hash_of(const NodeSet& nodes) {
  Hash hash;
  for (const std::string& node : nodes) hash.add(node);
  return hash.value();
}

NodeSet first_of(const std::vector<std::string>& nodes, std::size_t count) {
  return {nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(count)};
}

// Gives back what is not needed. `kept` fits.
void give_back_within(NodeSet kept, std::deque<search::Group> groups, SearchQuestions& questions) {
  search::give_back(std::move(kept), std::move(groups),
                    [&](const NodeSet& rest) -> std::optional<bool> {
                      if (!questions.may_go_on()) return std::nullopt;
                      return questions.fits(rest);
                    });
}

}  // namespace

SearchJournal::SearchJournal(std::filesystem::path path, std::uint64_t purpose)
    : path_(std::move(path)), purpose_(purpose) {
  std::ifstream in(path_);
  std::uint64_t written_for = 0;
  if (!(in >> written_for) || written_for != purpose_) return;
  std::uint64_t set = 0;
  std::string error;
  while (in >> set >> error) errors_[set] = std::strtod(error.c_str(), nullptr);
}

std::optional<double> SearchJournal::find(const NodeSet& kept) const {
  const auto found = errors_.find(hash_of(kept));
  if (found == errors_.end()) return std::nullopt;
  return found->second;
}

void SearchJournal::add(const NodeSet& kept, double error) {
  const bool is_first = errors_.empty();
  errors_[hash_of(kept)] = error;
  std::ofstream out(path_, is_first ? std::ios::trunc : std::ios::app);
  out.precision(17);
  if (is_first) out << purpose_ << '\n';
  out << hash_of(kept) << ' ' << error << '\n';
}

void SearchJournal::close() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

SearchQuestions::SearchQuestions(SearchJournal& journal, SearchBudget budget, double tolerance,
                                 std::function<double(const NodeSet&)> judge)
    : journal_(journal), budget_(budget), tolerance_(tolerance), judge_(std::move(judge)) {}

bool SearchQuestions::fits(const NodeSet& kept) {
  std::optional<double> error = journal_.find(kept);
  if (!error) {
    ++attempts_;
    error = judge_(kept);
    journal_.add(kept, *error);
  }
  const bool does = *error <= tolerance_;
  note(kept, does);
  return does;
}

void SearchQuestions::note(const NodeSet& kept, bool fits) {
  for (const auto& [other, other_fits] : asked_) {
    const NodeSet& less = fits ? kept : other;
    const NodeSet& more = fits ? other : kept;
    is_uneven_ = is_uneven_ || (fits != other_fits && std::ranges::includes(more, less));
  }
  asked_.emplace_back(kept, fits);
  if (fits && (!smallest_ || kept.size() < smallest_->size())) smallest_ = kept;
}

bool SearchQuestions::may_go_on() {
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin_;
  if (attempts_ >= budget_.attempts) {
    ended_by_ = "attempts";
  } else if (budget_.seconds && taken.count() >= *budget_.seconds) {
    ended_by_ = "time limit";
  }
  return ended_by_.empty();
}

double SearchQuestions::share() const {
  return std::min(1.0, static_cast<double>(attempts_) / budget_.attempts);
}

void search_by_borders(const std::vector<std::string>& candidates, SearchQuestions& questions) {
  NodeSet kept;
  // Everything behind a border stays float32: where moving the border by one node breaks the
  // tolerance, that node is to blame. Each further one takes a block twice as large along.
  std::size_t block = 1;
  std::deque<search::Group> groups;
  while (true) {
    if (!questions.may_go_on()) return;
    if (questions.fits(kept)) break;
    std::size_t good = 0;  // so many low nodes are fine
    std::size_t bad = candidates.size();
    while (bad - good > 1) {
      if (!questions.may_go_on()) return;
      const std::size_t middle = good + (bad - good) / 2;
      NodeSet tried = kept;
      tried.insert(candidates.begin() + static_cast<std::ptrdiff_t>(middle), candidates.end());
      (questions.fits(tried) ? good : bad) = middle;
    }
    search::Group guilty;
    for (std::size_t i = bad - std::min(bad, block); i < bad; ++i) {
      if (kept.insert(candidates[i]).second) guilty.names.push_back(candidates[i]);
    }
    if (guilty.names.empty() && block >= candidates.size()) return;
    if (!guilty.names.empty()) groups.push_back(std::move(guilty));
    block *= 2;
  }
  give_back_within(std::move(kept), std::move(groups), questions);
}

void search_by_rank(const std::vector<std::string>& ranked, std::size_t suspects,
                    SearchQuestions& questions) {
  if (!questions.may_go_on() || questions.fits({}) || ranked.empty()) return;
  std::size_t bad = 0;  // keeping so many is not enough
  std::size_t good = std::clamp<std::size_t>(suspects, 1, ranked.size());
  while (true) {
    if (!questions.may_go_on()) return;
    if (questions.fits(first_of(ranked, good))) break;
    if (good == ranked.size()) return;
    bad = good;
    good = std::min(2 * good, ranked.size());
  }
  while (good - bad > 1) {
    if (!questions.may_go_on()) return;
    const std::size_t middle = bad + (good - bad) / 2;
    (questions.fits(first_of(ranked, middle)) ? good : bad) = middle;
  }
  // The last one is needed: without it nothing fitted.
  search::Group others{{ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(good - 1)}};
  std::ranges::reverse(others.names);
  give_back_within(first_of(ranked, good), {std::move(others)}, questions);
}

}  // namespace mezzo::convert
