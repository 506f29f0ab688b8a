// Sums over watched steps and explained skips.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mezzo/report.h"

namespace mezzo::report {

/// All parameters of a watched step together.
struct WatchedSum {
  double update_ratio = 0;  ///< norm of all updates to that of all weights
  double lost = 0;  ///< share of the gradients below the type's normal numbers, zeros included
};
WatchedSum sum_of(const StepWatched&);

/// Explanations of a run's skipped steps, the most frequent first, and how many there are in all.
struct SkipClusters {
  std::vector<std::pair<std::string, std::int64_t>> summaries;
  std::int64_t all = 0;
};

/// By SkipExplained events; if there are none, by the messages of Options::explain_skips.
SkipClusters clusters_of(const Run&);

/// "97 of 100 explained skips: softmax (attn) overflowed".
std::string cluster_text(const SkipClusters&, std::size_t place);

}  // namespace mezzo::report
