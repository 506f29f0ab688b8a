// The exchange of ranks about their batches.
#pragma once

#include <optional>
#include <string>

#include "core/torch.h"
#include "mezzo/process_group.h"
#include "parallel/rank_words.h"

namespace mezzo::parallel {

/// The elements of a channel on all ranks. For a device the host does not know how many: it would
/// have to wait.
struct ElementCount {
  double known = 0;       // if `there` is undefined
  at::Tensor there = {};  // one double on the device

  /// numbers / (count - less), by 1 where that is nothing. Differentiable in the numbers.
  at::Tensor divide(const at::Tensor& numbers, double less = 0) const;
};

struct RankStatistics {
  at::Tensor mean;  // [C], double
  at::Tensor m2;    // [C], double: the sum of squared deviations
  ElementCount count;
  // Some rank's backward is kInput, so that all take part in its collective. On a device: this
  // one's has a collective, since nobody knows of the others in time.
  bool any_input = false;
  std::shared_ptr<const RankWords> words;  // null without a group
};

/// One collective: all ranks' moments ([2, C], double), merged in the order of the ranks. `call` is
/// named in errors. Throws ConfigError if the ranks have one element per channel together; on a
/// device a later call does.
RankStatistics exchange_moments(const at::Tensor& moments, double count, Backward backward,
                                const std::optional<ProcessGroup>& group, NormName call);

/// A rank without data in the others' exchange_moments().
void give_no_moments(std::int64_t channels, const at::Device& device, const detail::Group& group);

/// One collective: the sum over all ranks. The tensor itself without a group.
at::Tensor sum_over_ranks(const at::Tensor& sums, const std::optional<ProcessGroup>& group);

/// As above, for autograd: its backward is a sum over all ranks again.
at::Tensor differentiable_sum(const at::Tensor& sums, const std::optional<ProcessGroup>& group);

}  // namespace mezzo::parallel
