// How other parts of the library decide together with the other ranks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/torch.h"
#include "mezzo/process_group.h"
#include "ranks/overflow_origin.h"

namespace mezzo::parallel {

/// All ranks, once init_process_group() was called; nothing before, or in a world of one.
std::optional<ProcessGroup> world_if_any();

/// The element-wise maximum of `flag` over the group's ranks, as a new tensor of the same shape,
/// type (float, double, int or long) and device. One small collective on a lane of its own, so it
/// may be called while gradients are reduced; every member calls it equally often. A group of one:
/// a copy. Throws as every collective.
at::Tensor agree_max(const at::Tensor& flag, const ProcessGroup& group);

/// A flag that all ranks of a group agreed on.
struct AgreedFlag {
  at::Tensor found_inf;  // not zero if any rank's is not; the shape and type of the rank's own
  at::Tensor origin;     // [2], double: for origin_of() and is_on_all()
};

class Pending;

/// A flag on its way to the other ranks. Every rank that begins one waits for it.
class OverflowAgreement {
 public:
  /// Begins agree_max() of the ranks' overflow flags, one element each, together with who raised
  /// it: one collective of two doubles. `place` is called on a rank whose flag is up and on the
  /// host: the first gradient that is not finite.
  OverflowAgreement(const at::Tensor& flag,
                    const std::function<std::optional<std::int64_t>()>& place,
                    const ProcessGroup& group);
  ~OverflowAgreement();
  OverflowAgreement(OverflowAgreement&&) noexcept;
  OverflowAgreement& operator=(OverflowAgreement&&) noexcept;

  /// The result; for GPUs whose tensors travel by NCCL, the stream waits and the host does not.
  AgreedFlag wait();

 private:
  at::Tensor flag_;
  at::Tensor numbers_;
  std::unique_ptr<Pending> pending_;
};

/// Both at once.
AgreedFlag agree_overflow(const at::Tensor& flag,
                          const std::function<std::optional<std::int64_t>()>& place,
                          const ProcessGroup& group);

/// Takes part, with the flag up, for a rank that an exception took out of its step: the others skip
/// theirs. Returns whether there are others, or this happened to all ranks.
bool make_others_skip(const at::Device& device, const ProcessGroup& group);

/// The rank (of the whole) that overflowed, with the place that it gave; nothing if there is
/// none. Reads the device.
std::optional<ranks::OverflowOrigin> origin_of(const at::Tensor& origin, const ProcessGroup& group);
/// Did no rank have a flag that was down? Reads the device.
bool is_on_all(const at::Tensor& origin);

/// How many join() loops over at least these ranks this process has left. Equal on all of them when
/// no loop is open.
int loops_left(const ProcessGroup& group);

/// While one lives, gradients are looked at before they are averaged: whose were not finite cannot
/// be seen afterwards. For those who will report it. On CPUs.
class OverflowWatch {
 public:
  OverflowWatch();
  ~OverflowWatch();
  OverflowWatch(const OverflowWatch&) = delete;
  OverflowWatch& operator=(const OverflowWatch&) = delete;
};

/// How many live in this process.
int overflow_watches();

/// The ranks of the whole whose gradients were not finite before the reduction that made these
/// equal: none if the average alone overflowed. Nothing if the gradients were not reduced, or
/// nobody looked.
std::optional<std::vector<int>> nonfinite_ranks(const std::vector<at::Tensor>& gradients);

/// Did the reduction of a DistributedDataParallel over at least these ranks make all these
/// gradients equal on all of them, with no backward since that added to them? A flag computed from
/// them is the same on all ranks then, unless something was written to them since. Undefined
/// gradients do not count; none at all: false.
bool spread_by_reduction(const std::vector<at::Tensor>& gradients, const ProcessGroup& group);

/// How often the buckets of these gradients were reduced, added up: whether a reduction has ended
/// since it was asked last.
std::int64_t reductions_of(const std::vector<at::Tensor>& gradients);

/// Is this gradient a view into a reducer's bucket? Such gradients are zeroed in place, never
/// replaced or set to undefined, so that the next backward adds into the bucket.
bool is_bucket_view(const at::Tensor& gradient);

/// After an exception left a backward: the reducer of this gradient, if it has one, gives the other
/// ranks what they wait for, and the gradient may be written again. Throws as collectives do.
void close_broken_backward(const at::Tensor& gradient);

}  // namespace mezzo::parallel
