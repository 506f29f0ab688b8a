// What watched steps add up to.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mezzo/events.h"

namespace mezzo::report {

/// All parameters of a watched step together.
struct WatchedSum {
  double update_ratio = 0;  ///< norm of all updates to that of all weights
  double lost = 0;          ///< share of the gradients below the type's normal numbers, zeros included
};
WatchedSum sum_of(const StepWatched&);

/// Explained skips by what they say, the most frequent first: "97 of 100 skips come from ...".
std::vector<std::pair<std::string, std::int64_t>> clusters_of(const std::vector<SkipExplained>&);

/// "97 of 100 explained skips: softmax (attn) overflowed".
std::string cluster_text(const std::pair<std::string, std::int64_t>& cluster, std::size_t all);

}  // namespace mezzo::report
