// The exchange of ranks about their batches.
#pragma once

#include <optional>
#include <string>

#include "core/torch.h"
#include "mezzo/process_group.h"

namespace mezzo::parallel {

/// The collective part of a rank's backward.
enum class Backward : std::int64_t {
  kNone = 0,     // its forward records nothing
  kWeights = 1,  // gradients of the weights alone: no collective
  kInput = 2,    // the input's gradient too
  kAbsent = 3,   // no data, and whatever the others do
};

struct RankStatistics {
  at::Tensor mean;   // [C], double
  at::Tensor m2;     // [C], double: the sum of squared deviations
  double count = 0;  // elements of a channel on all ranks
  bool any_input =
      false;  // some rank's backward is kInput, so that all take part in its collective
  int without_graph = -1;  // the first rank whose forward records nothing
};

/// One collective: all ranks' moments ([2, C], double), merged in the order of the ranks.
RankStatistics exchange_moments(const at::Tensor& moments, double count, Backward backward,
                                const std::optional<ProcessGroup>& group);

/// A rank without data in the others' exchange_moments().
void give_no_moments(std::int64_t channels, const at::Device& device, const detail::Group& group);

/// One collective: the sum over all ranks. The tensor itself without a group.
at::Tensor sum_over_ranks(const at::Tensor& sums, const std::optional<ProcessGroup>& group);

/// As above, for autograd: its backward is a sum over all ranks again.
at::Tensor differentiable_sum(const at::Tensor& sums, const std::optional<ProcessGroup>& group);

}  // namespace mezzo::parallel
