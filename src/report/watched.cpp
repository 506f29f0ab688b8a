#include "report/watched.h"

#include <algorithm>
#include <cmath>

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

std::vector<std::pair<std::string, std::int64_t>> clusters_of(
    const std::vector<SkipExplained>& skips) {
  std::vector<std::pair<std::string, std::int64_t>> clusters;
  for (const SkipExplained& skip : skips) {
    const auto same = std::ranges::find(clusters, skip.summary, [](auto& c) { return c.first; });
    if (same == clusters.end()) {
      clusters.emplace_back(skip.summary, 1);
    } else {
      ++same->second;
    }
  }
  std::ranges::stable_sort(clusters, std::greater(), [](auto& c) { return c.second; });
  return clusters;
}

std::string cluster_text(const std::pair<std::string, std::int64_t>& cluster, std::size_t all) {
  return std::to_string(cluster.second) + " of " + std::to_string(all) +
         (all == 1 ? " explained skip: " : " explained skips: ") + cluster.first;
}

}  // namespace mezzo::report
