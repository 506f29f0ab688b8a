// Batch norms that cannot be replaced, because they are typed fields of their modules: known by a
// tensor of theirs, and caught in LibTorch's dispatcher.
#pragma once

#include <optional>

#include "core/torch.h"
#include "mezzo/process_group.h"

namespace mezzo::parallel {

struct BatchNormMark {
  std::optional<ProcessGroup> group;
  bool channel_last = false;
};

/// From now on batch norms with this running mean, or this weight if they have no running mean,
/// run synchronised inside SynchronisedCalls, on any thread. Holds no reference; a mark goes with
/// its tensor. A second mark replaces the first.
void mark_batch_norm(const at::Tensor& known_by, const BatchNormMark& mark);

}  // namespace mezzo::parallel
