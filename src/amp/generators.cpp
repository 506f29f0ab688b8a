#include "amp/generators.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>
#include <mutex>

#include "bridge/device.h"

namespace mezzo::amp::detail {
namespace {

bool is_used(const at::Generator& generator) {
  const at::Device device = generator.device();
  return device.is_cpu() || at::detail::getCUDAHooks().hasPrimaryContext(device.index());
}

at::Tensor state_of(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

std::vector<at::Generator> default_generators() {
  std::vector<at::Generator> generators{at::globalContext().defaultGenerator(at::kCPU)};
  if (!at::hasCUDA()) return generators;
  for (std::size_t i = 0; i < at::getNumGPUs(); ++i) {
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(i));
    generators.push_back(at::globalContext().defaultGenerator(device));
  }
  return generators;
}

std::vector<at::Tensor> states_of_generators() {
  std::vector<at::Generator> generators = default_generators();
  std::vector<at::Tensor> states;
  states.reserve(generators.size());
  for (at::Generator& generator : generators) states.push_back(state_of(generator));
  return states;
}

std::vector<at::Tensor> states_of_used_generators() {
  std::vector<at::Generator> generators = default_generators();
  const bool captures =
      std::any_of(generators.begin(), generators.end(), [](const at::Generator& generator) {
        return is_used(generator) && bridge::current_capture(generator.device()) != 0;
      });
  std::vector<at::Tensor> states;
  states.reserve(generators.size());
  for (at::Generator& generator : generators) {
    const bool answers = generator.device().is_cpu() || (!captures && is_used(generator));
    states.push_back(answers ? state_of(generator) : at::Tensor());
  }
  return states;
}

void set_states_of_generators(const std::vector<at::Tensor>& states) {
  std::vector<at::Generator> generators = default_generators();
  for (std::size_t i = 0; i < std::min(generators.size(), states.size()); ++i) {
    if (!states[i].defined()) continue;
    const std::lock_guard lock(generators[i].mutex());
    generators[i].set_state(states[i]);
  }
}

}  // namespace mezzo::amp::detail
