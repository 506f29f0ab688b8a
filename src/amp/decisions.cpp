#include "amp/decisions.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "scaling/to_device.h"

namespace mezzo::amp::detail {
namespace {

at::Tensor number_on(const at::Tensor& number, const at::Device& device) {
  return scaling::to_device(number.detach(), device).to(at::kFloat).reshape({});
}

}  // namespace

void Decisions::note(Decision known, const at::Tensor& found_inf, const scaling::ScaleValue& before,
                     const scaling::ScaleValue& after, const at::Tensor& stuck) {
  const at::NoGradGuard no_grad;
  const at::Device device = found_inf.device();
  Queued queued{std::move(known), {}, {}, after.there.defined(), std::nullopt};
  // Floats: scales are, and counts of overflows are far below what float counts to.
  std::vector<at::Tensor> numbers{number_on(found_inf, device)};
  const auto add = [&](const scaling::ScaleValue& scale, double Decision::*field) {
    queued.known.*field = scale.number;
    if (!scale.there.defined()) return;
    numbers.push_back(number_on(scale.there, device));
    queued.fields.push_back(field);
  };
  add(before, &Decision::scale_before);
  add(after, &Decision::scale_after);
  if (queued.has_stuck) numbers.push_back(number_on(stuck, device));
  const at::Tensor there = numbers.size() == 1 ? numbers.front().reshape({1}) : at::stack(numbers);
  queued.numbers = there.to(at::kCPU, at::kFloat, /*non_blocking=*/true, /*copy=*/true);
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
  const auto* number = first.numbers.const_data_ptr<float>();
  Decision decision = std::move(first.known);
  decision.applied = *number++ == 0;
  for (double Decision::*const field : first.fields)
    decision.*field = static_cast<double>(*number++);
  if (first.has_stuck) decision.stuck = static_cast<std::int64_t>(*number);
  queued_.pop_front();
  return decision;
}

}  // namespace mezzo::amp::detail
