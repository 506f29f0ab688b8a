#include "amp/captured_counts.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "scaling/to_device.h"

namespace mezzo::amp::detail {

void CapturedCounts::make_room(const at::Device& device) {
  if (has_room(device)) return;
  numbers_ = numbers_.defined() ? numbers_.to(device)
                                : at::zeros({2}, at::TensorOptions(device).dtype(at::kLong));
}

void CapturedCounts::count(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  any_ = true;
  if (!found_inf.defined()) {
    numbers_.add_(1);
    return;
  }
  numbers_.narrow(0, 0, 1).add_(1);
  const at::Tensor applied = scaling::to_device(found_inf, numbers_.device()).reshape({1}).eq(0);
  numbers_.narrow(0, 1, 1).add_(applied);
}

CapturedCounts::Counts CapturedCounts::read() const {
  if (!any_) return {};
  const at::Tensor here = numbers_.to(at::kCPU);
  const auto* numbers = here.const_data_ptr<std::int64_t>();
  return {numbers[1], numbers[0] - numbers[1]};
}

}  // namespace mezzo::amp::detail
