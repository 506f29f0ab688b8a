// Batch norm over the ranks of a group: one collective in the forward, one in the backward.
#pragma once

#include <optional>
#include <string>

#include "core/torch.h"
#include "mezzo/process_group.h"

namespace mezzo::parallel {

struct BatchNormCall {
  std::string where;  // in errors
  at::Tensor x;       // channels in the last dimension or, with two dimensions and more, the second
  bool channel_last = false;
  at::Tensor z, weight, bias;            // may be undefined
  at::Tensor running_mean, running_var;  // may be undefined
  bool batch_statistics = true;          // or those of running_mean and running_var
  std::optional<double> momentum;        // running statistics move so far towards the batch's
  at::Tensor batches;  // defined: by 1 / (batches + 1) instead, a count on their device
  double eps = 1e-5;
  bool relu = false;
  std::optional<ProcessGroup> group;  // none: this process alone
};

/// The norm, differentiable as often as one likes. Throws ConfigError for what does not fit.
at::Tensor sync_batch_norm(const BatchNormCall& call);

/// The group whose ranks share their statistics: the given one, else all ranks; nothing if that
/// is one process.
std::optional<ProcessGroup> statistics_group(const std::optional<ProcessGroup>& given);

}  // namespace mezzo::parallel
