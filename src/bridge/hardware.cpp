#include "mezzo/hardware.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "bridge/device.h"
#include "bridge/proofs.h"
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

std::vector<KernelProof> kernel_proofs() {
  std::vector<KernelProof> all;
  if (!c10::impl::hasDeviceGuardImpl(at::kCUDA)) return all;
  const int count = c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount();
  for (int i = 0; i < count; ++i) {
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(i));
    bridge::Proofs* proofs = bridge::proofs_on(device);
    if (proofs == nullptr) continue;
    for (const bridge::Family family : bridge::kFamilies) {
      const bool holds = proofs->hold(device, family);
      all.push_back({device.str(), bridge::name_of(family), holds,
                     holds ? "" : proofs->difference(device, family)});
    }
  }
  return all;
}

void set_kernel_set(const std::string& name) {
  kernels::choose_kernel_set(name);
}

}  // namespace mezzo
