#include "insight/float_search.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <utility>

#include "insight/observer.h"
#include "search/give_back.h"

namespace mezzo::insight {

namespace {

using Names = std::vector<std::string>;

/// Runs that are left for all names at once, and for making them fewer.
constexpr int kRunsForAll = 2;
constexpr int kMostPlaces = 4;

/// The runs of one search.
class FloatTrials {
 public:
  FloatTrials(StepTrial& step, const FloatCandidates& candidates, int runs)
      : step_(step), candidates_(candidates), left_(runs) {}

  int left() const noexcept { return step_.may_run() ? left_ : 0; }
  StepOutcome run(const Names& names, Observer* observer = nullptr) {
    --left_;
    return step_.attempt(candidates_.keeping(names), step_.scale(), observer);
  }

 private:
  StepTrial& step_;
  const FloatCandidates& candidates_;
  int left_;
};

bool holds(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// The first name of a list that is not kept yet.
std::optional<std::string> next_of(const Names& names, const Names& kept) {
  const auto found = std::ranges::find_if(names, [&](auto& name) { return !holds(kept, name); });
  return found == names.end() ? std::nullopt : std::optional(*found);
}

/// Without the names that are not needed, as far as the runs go. The first names are taken out
/// before the last ones.
Names fewer(FloatTrials& trials, const Names& names, std::deque<search::Group> groups) {
  const auto in_order = [&](const search::NameSet& kept) {
    Names some;
    std::ranges::copy_if(names, std::back_inserter(some),
                         [&](const std::string& name) { return kept.contains(name); });
    return some;
  };
  const search::NameSet kept =
      search::give_back({names.begin(), names.end()}, std::move(groups),
                        [&](const search::NameSet& rest) -> std::optional<bool> {
                          if (trials.left() <= 0) return std::nullopt;
                          return trials.run(in_order(rest)).passed;
                        });
  return in_order(kept);
}

}  // namespace

std::vector<std::string> search_float(StepTrial& step, const ModulePaths& paths, const Trace& trace,
                                      const Trace::Origin& origin,
                                      const FloatCandidates& candidates, int most_runs) {
  FloatTrials trials(step, candidates, most_runs);
  Names kept, nearest = candidates.near(trace, origin);
  for (int place = 0; place < kMostPlaces && trials.left() > kRunsForAll; ++place) {
    const std::optional<std::string> next = next_of(nearest, kept);
    if (!next) break;
    kept.push_back(*next);
    Observer observer(paths);
    const StepOutcome outcome = trials.run(kept, &observer);
    if (outcome.passed) {
      // The last one is needed.
      const Names others(kept.begin(), std::prev(kept.end()));
      return fewer(trials, kept, {{others, false, false}});
    }
    nearest = candidates.near(observer.trace(), observer.trace().origin_of(outcome.bad_gradients));
  }
  Names all = candidates.all(trace);
  // The fault's neighbours come last.
  std::stable_partition(all.begin(), all.end(),
                        [&](const std::string& name) { return !holds(kept, name); });
  if (all.empty() || all.size() == kept.size() || trials.left() <= 0) return {};
  if (!trials.run(all).passed) return {};
  return fewer(trials, all, {{all, true, false}});
}

}  // namespace mezzo::insight
