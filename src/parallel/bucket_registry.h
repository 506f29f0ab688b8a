// Which storages are reducers' buckets: so that a gradient shows what happened to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/torch.h"

namespace mezzo::parallel {

/// One bucket's state, shared between its reducer and those who ask.
struct BucketMark {
  std::vector<int> ranks;                   // whose gradients were averaged
  std::atomic<bool> reduced{false};         // equal on all ranks, and nothing was added since
  std::atomic<std::int64_t> reductions{0};  // so far
  // Ends a backward that an exception left, if there is one.
  std::function<void()> close_broken_backward;
  // Members of the group on which something was not finite before the average of any bucket.
  // Nothing if nobody looked. Set before `reduced`.
  std::optional<std::vector<int>> nonfinite_ranks;
};

/// Registers a flat bucket; forgotten with `forget_bucket`. Safe from several threads.
void register_bucket(const at::Tensor& flat, const std::shared_ptr<BucketMark>& mark);
void forget_bucket(const at::Tensor& flat);
/// Null if the tensor's storage is no bucket.
std::shared_ptr<BucketMark> bucket_of(const at::Tensor& gradient);

}  // namespace mezzo::parallel
