#include "recompute/surroundings.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <mutex>

namespace mezzo::recomputation {
namespace {

std::vector<NativeAutocast> native_autocast(const std::vector<NativeAutocast>* like = nullptr) {
  std::vector<NativeAutocast> all;
  if (like == nullptr) {
    for (const at::DeviceType device : {at::kCPU, at::kCUDA})
      all.push_back(NativeAutocast::here(device));
  } else {
    for (const NativeAutocast& each : *like) all.push_back(NativeAutocast::here(each.device));
  }
  return all;
}

std::vector<at::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Device> devices{at::Device(at::kCPU)};
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const at::Device device = tensor.device();
    if (device.is_cuda() && std::ranges::find(devices, device) == devices.end())
      devices.push_back(device);
  }
  return devices;
}

}  // namespace

NativeAutocast NativeAutocast::here(at::DeviceType device) {
  return {device, at::autocast::is_autocast_enabled(device),
          at::autocast::get_autocast_dtype(device)};
}

void NativeAutocast::restore() const {
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, type);
}

RandomState RandomState::of(const at::Generator& generator) {
  at::Generator own = generator;
  const std::scoped_lock lock(own.mutex());
  return {own, own.get_state()};
}

void RandomState::restore() const {
  at::Generator own = generator;
  const std::scoped_lock lock(own.mutex());
  own.set_state(state);
}

Surroundings::Surroundings(const std::vector<at::Tensor>& inputs)
    : native_(native_autocast()), native_cache_(at::autocast::is_autocast_cache_enabled()) {
  for (const at::Device device : devices_of(inputs))
    random_.push_back(RandomState::of(at::globalContext().defaultGenerator(device)));
}

Surroundings::Guard::Guard(const Surroundings& surroundings)
    : recorded_(at::GradMode::is_enabled()),
      native_cache_(at::autocast::is_autocast_cache_enabled()),
      native_(native_autocast(&surroundings.native_)),
      casts_(surroundings.casts_) {
  for (const RandomState& each : surroundings.random_)
    random_.push_back(RandomState::of(each.generator));
  at::GradMode::set_enabled(true);
  at::autocast::set_autocast_cache_enabled(surroundings.native_cache_);
  at::autocast::increment_nesting();
  for (const NativeAutocast& each : surroundings.native_) each.restore();
  for (const RandomState& each : surroundings.random_) each.restore();
}

Surroundings::Guard::~Guard() {
  for (const RandomState& each : random_) each.restore();
  for (const NativeAutocast& each : native_) each.restore();
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_cache_enabled(native_cache_);
  at::GradMode::set_enabled(recorded_);
}

}  // namespace mezzo::recomputation
