#include <algorithm>

#include "core/raise.h"
#include "mezzo/insight_search.h"
#include "search/give_back.h"
#include "search/journal.h"

namespace mezzo::insight {
namespace {

using search::NameSet;

constexpr const char* kInSearch = "smallest_float_set";

// The questions of one search, with their answers.
class Questions {
 public:
  Questions(const std::vector<std::string>& candidates,
            std::function<bool(const std::vector<std::string>&)> good, const SearchOptions& options)
      : candidates_(candidates),
        good_(std::move(good)),
        left_(options.max_judgements),
        journal_(options.journal, options.purpose, candidates) {}

  /// Nothing if the budget is used up.
  std::optional<bool> fits(const NameSet& kept) {
    search::Selection selection;
    for (const std::string& name : candidates_) selection.push_back(kept.contains(name));
    if (const auto known = journal_.find(selection)) return known;
    if (left_ && *left_ == judgements_) return std::nullopt;
    ++judgements_;
    const bool answer = good_(in_order(kept));
    journal_.add(selection, answer);
    return answer;
  }

  FloatSet result(const NameSet& kept, bool complete) {
    return {in_order(kept), judgements_, complete};
  }

  void close() { journal_.close(); }

 private:
  std::vector<std::string> in_order(const NameSet& kept) const {
    std::vector<std::string> names;
    std::ranges::copy_if(candidates_, std::back_inserter(names),
                         [&](const std::string& name) { return kept.contains(name); });
    return names;
  }

  const std::vector<std::string>& candidates_;
  std::function<bool(const std::vector<std::string>&)> good_;
  std::optional<int> left_;
  search::Journal journal_;
  int judgements_ = 0;
};

// Tries each member alone until none can go: what the groups took for needed may not be, where the
// judge is not monotone. False if the budget ended it.
bool drop_single_members(NameSet& kept, const std::vector<std::string>& candidates,
                         Questions& questions) {
  bool is_minimal = false;
  while (!is_minimal) {
    is_minimal = true;
    for (const std::string& name : candidates) {
      if (!kept.contains(name)) continue;
      NameSet rest = kept;
      rest.erase(name);
      const std::optional<bool> does = questions.fits(rest);
      if (!does) return false;
      if (!*does) continue;
      kept = std::move(rest);
      is_minimal = false;
    }
  }
  return true;
}

}  // namespace

FloatSet smallest_float_set(const std::vector<std::string>& candidates,
                            std::function<bool(const std::vector<std::string>&)> good,
                            SearchOptions options) {
  const NameSet all(candidates.begin(), candidates.end());
  if (!good) raise<ConfigError>(kInSearch, "there is no judge; give a function of the kept names");
  if (options.max_judgements && *options.max_judgements < 1) {
    raise<ConfigError>(kInSearch, "max_judgements is ", *options.max_judgements,
                       "; give at least 1, or leave it unset");
  }
  if (all.size() != candidates.size()) {
    const auto twice = std::ranges::find_if(candidates, [&](const std::string& name) {
      return std::ranges::count(candidates, name) > 1;
    });
    raise<ConfigError>(kInSearch, "the candidate '", *twice, "' is named twice; name it once");
  }
  Questions questions(candidates, std::move(good), options);
  const std::optional<bool> without_any = questions.fits({});
  if (!without_any) return questions.result({}, false);
  const std::optional<bool> with_all = *without_any ? true : questions.fits(all);
  if (*without_any || !with_all || !*with_all) {
    if (with_all) questions.close();
    return questions.result({}, *without_any);
  }
  NameSet kept = search::give_back(all, {{candidates, true, false}},
                                   [&](const NameSet& rest) { return questions.fits(rest); });
  const bool complete = drop_single_members(kept, candidates, questions);
  if (complete) questions.close();
  return questions.result(kept, complete);
}

}  // namespace mezzo::insight
