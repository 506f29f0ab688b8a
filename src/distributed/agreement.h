// How other parts of the library decide together with the other ranks.
#pragma once

#include <optional>
#include <vector>

#include "core/torch.h"
#include "mezzo/process_group.h"

namespace mezzo::parallel {

/// All ranks, once init_process_group() was called; nothing before, or in a world of one.
std::optional<ProcessGroup> world_if_any();

/// The element-wise maximum of `flag` over the group's ranks, as a new tensor of the same shape,
/// type (float, double, int or long) and device. One small collective on a lane of its own, so it
/// may be called while gradients are reduced; every member calls it equally often. A group of one:
/// a copy. Throws as every collective.
at::Tensor agree_max(const at::Tensor& flag, const ProcessGroup& group);

/// Did the reduction of a DistributedDataParallel over at least these ranks make all these
/// gradients equal on all of them, with no backward since that added to them? Then a flag computed
/// from them is agreed already. Undefined gradients do not count; none at all: false. All ranks
/// that run the same program get the same answer.
bool spread_by_reduction(const std::vector<at::Tensor>& gradients, const ProcessGroup& group);

/// Is this gradient a view into a reducer's bucket? Such gradients are zeroed in place, never
/// replaced or set to undefined, so that the next backward adds into the bucket.
bool is_bucket_view(const at::Tensor& gradient);

}  // namespace mezzo::parallel
