// Autograd's notice that a parameter's gradient is complete.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/torch.h"

namespace mezzo::parallel {

/// While it lives, calls back with a parameter's index after each accumulation into its gradient,
/// on the thread that did it.
class GradientHooks {
 public:
  GradientHooks(const std::vector<at::Tensor>& parameters, const std::function<void(int)>& arrived);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  struct Registered;
  std::vector<Registered> registered_;
};

/// A number of the backward that runs on this thread; -1 outside of one.
std::int64_t current_backward();

/// Calls back when the backward that runs on this thread is over; what is thrown there comes out of
/// backward(). Not called where the backward itself throws. The result expires when that backward
/// is gone, however it ended.
std::weak_ptr<const void> at_end_of_backward(std::function<void()> callback);

}  // namespace mezzo::parallel
