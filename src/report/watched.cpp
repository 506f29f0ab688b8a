#include "report/watched.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

namespace mezzo::report {

WatchedSum sum_of(const StepWatched& step) {
  double updates = 0, weights = 0, lost = 0, count = 0;
  for (const Watched& row : step.rows) {
    if (row.parameter.empty()) continue;
    updates += row.updates.norm * row.updates.norm;
    weights += row.weights.norm * row.weights.norm;
    const auto values = static_cast<double>(row.gradients.count);
    lost += values * (row.gradients.zeros + row.gradients.subnormals);
    count += values;
  }
  return {.update_ratio = std::sqrt(updates / weights), .lost = lost / count};
}

SkipClusters clusters_of(const Run& run) {
  SkipClusters clusters;
  const auto count = [&](const std::string& summary) {
    ++clusters.all;
    for (auto& [known, times] : clusters.summaries) {
      if (known != summary) continue;
      ++times;
      return;
    }
    clusters.summaries.emplace_back(summary, 1);
  };
  for (const SkipExplained& skip : run.explained) count(skip.summary);
  constexpr std::string_view kMark = "; explained: ";
  for (const std::string& message : run.messages) {
    const std::size_t at = message.find(kMark);
    if (!run.explained.empty() || at == std::string::npos) continue;
    const std::size_t begin = at + kMark.size();
    count(message.substr(begin, message.find(';', begin) - begin));
  }
  std::ranges::stable_sort(clusters.summaries, std::greater(), [](auto& c) { return c.second; });
  return clusters;
}

std::string cluster_text(const SkipClusters& clusters, std::size_t place) {
  const auto& [summary, times] = clusters.summaries[place];
  return std::to_string(times) + " of " + std::to_string(clusters.all) +
         (clusters.all == 1 ? " explained skip: " : " explained skips: ") + summary;
}

}  // namespace mezzo::report
