#include "mezzo/hardware.h"

#include "kernels/cuda_library.h"
#include "kernels/kernel_set.h"

namespace mezzo {

std::vector<std::string> kernel_sets() {
  std::vector<std::string> names;
  for (const kernels::KernelSet* set : kernels::usable_kernel_sets()) names.emplace_back(set->name);
  return names;
}

std::string kernel_set() {
  return kernels::kernels().name;
}

std::string why_no_cuda_kernels() {
  return kernels::why_no_cuda_library();
}

void set_kernel_set(const std::string& name) {
  kernels::choose_kernel_set(name);
}

}  // namespace mezzo
