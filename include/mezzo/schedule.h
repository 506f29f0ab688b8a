// A learning-rate schedule that does not run ahead of the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "mezzo/export.h"
#include "mezzo/optimizer.h"

namespace mezzo::amp::detail {

/// Steps that moved weights since `initialize`; loading changes nothing here.
MEZZO_API std::int64_t steps_made(const amp::Optimizer& optimizer);

}  // namespace mezzo::amp::detail

namespace mezzo::amp {

/// Calls a scheduler's `step` only when the optimizer has moved weights since the last call: a
/// step that was skipped or had no gradients does not advance the schedule, nor does loading.
/// `Schedule schedule(torch::optim::StepLR(sgd, 30), optimizer); ... optimizer.step();
/// schedule.step();`
///
/// The scheduler must have been made for `optimizer.inner()`. Given by name it stays the caller's,
/// and must outlive this object; given by value it belongs to this object and its copies.
template <typename Scheduler>
class Schedule {
 public:
  Schedule(Scheduler& scheduler, Optimizer optimizer)
      : Schedule(std::shared_ptr<Scheduler>(std::shared_ptr<void>(), &scheduler),
                 std::move(optimizer)) {}
  Schedule(Scheduler&& scheduler, Optimizer optimizer)
      : Schedule(std::make_shared<Scheduler>(std::move(scheduler)), std::move(optimizer)) {}

  /// The arguments are the scheduler's (a metric for ReduceLROnPlateau). True where it advanced.
  template <typename... Args>
  bool step(Args&&... args) {
    const std::int64_t made = detail::steps_made(optimizer_);
    if (made <= seen_) return false;
    seen_ = made;
    scheduler_->step(std::forward<Args>(args)...);
    return true;
  }

 private:
  Schedule(std::shared_ptr<Scheduler> scheduler, Optimizer optimizer)
      : scheduler_(std::move(scheduler)),
        optimizer_(std::move(optimizer)),
        seen_(detail::steps_made(optimizer_)) {}

  std::shared_ptr<Scheduler> scheduler_;
  Optimizer optimizer_;
  std::int64_t seen_;
};

}  // namespace mezzo::amp
