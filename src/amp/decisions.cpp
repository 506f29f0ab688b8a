#include "amp/decisions.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "scaling/to_device.h"

namespace mezzo::amp::detail {
namespace {

at::Tensor number_on(const at::Tensor& number, const at::Device& device) {
  return scaling::to_device(number.detach(), device).to(at::kDouble).reshape({});
}

at::Tensor number_on(const scaling::ScaleValue& scale, const at::Device& device) {
  if (scale.there.defined()) return number_on(scale.there, device);
  return at::full({}, scale.number, at::TensorOptions(device).dtype(at::kDouble));
}

}  // namespace

void Decisions::note(Decision known, const at::Tensor& found_inf, const scaling::ScaleValue& before,
                     const scaling::LossScaler& after) {
  const at::NoGradGuard no_grad;
  const at::Device device = found_inf.device();
  const at::Tensor numbers =
      at::stack({number_on(found_inf, device), number_on(before, device),
                 number_on(after.value(), device), number_on(after.stuck(), device)});
  Queued queued{std::move(known),
                numbers.to(at::kCPU, at::kDouble, /*non_blocking=*/true, /*copy=*/true),
                std::nullopt};
  if (!device.is_cpu()) {
    // Nobody reads the numbers before this has come to pass.
    queued.arrived.emplace(device.type());
    queued.arrived->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  queued_.push_back(std::move(queued));
}

std::optional<Decision> Decisions::next(bool waits) {
  if (queued_.empty()) return std::nullopt;
  Queued& first = queued_.front();
  if (first.arrived && !first.arrived->query()) {
    if (!waits) return std::nullopt;
    first.arrived->synchronize();
  }
  const auto* numbers = first.numbers.const_data_ptr<double>();
  Decision decision = std::move(first.known);
  decision.applied = numbers[0] == 0;
  decision.scale_before = numbers[1];
  decision.scale_after = numbers[2];
  decision.stuck = static_cast<std::int64_t>(numbers[3]);
  queued_.pop_front();
  return decision;
}

}  // namespace mezzo::amp::detail
