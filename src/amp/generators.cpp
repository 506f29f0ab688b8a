#include "amp/generators.h"

#include <ATen/Context.h>

namespace mezzo::amp::detail {

at::Generator host_generator() {
  return at::globalContext().defaultGenerator(at::kCPU);
}

std::vector<at::Generator> default_generators() {
  std::vector<at::Generator> generators{host_generator()};
  if (!at::hasCUDA()) return generators;
  for (std::size_t i = 0; i < at::getNumGPUs(); ++i) {
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(i));
    generators.push_back(at::globalContext().defaultGenerator(device));
  }
  return generators;
}

}  // namespace mezzo::amp::detail
