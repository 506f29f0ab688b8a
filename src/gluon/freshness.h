// Which parameters had a backward pass since the last applied step.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "core/torch.h"
#include "parallel/gradient_hooks.h"

namespace mezzo::gluon {

/// Told by autograd. A gradient that the program put there itself counts as well, unless it is the
/// memory that was there at the last step.
class Freshness {
 public:
  /// `parameters[replica][i]`.
  explicit Freshness(std::vector<std::vector<at::Tensor>> parameters);

  bool is_fresh(std::size_t replica, std::size_t i) const;

  /// After an applied step: all are stale.
  void forget();

 private:
  struct One {
    at::Tensor parameter;
    bool hooked = false;
    c10::weak_intrusive_ptr<c10::StorageImpl> seen;  // zeroing may put another tensor over it
  };
  const One& one(std::size_t replica, std::size_t i) const { return all_[replica * count_ + i]; }

  std::size_t count_ = 0;  // in a replica
  std::vector<One> all_;
  std::unique_ptr<std::atomic<bool>[]> arrived_;  // by place in all_
  std::optional<parallel::GradientHooks> hooks_;
};

}  // namespace mezzo::gluon
