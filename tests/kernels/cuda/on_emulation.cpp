// The functions of the same sources, compiled for the processor.
#include "kernels/cuda/device.h"

namespace mezzo::kernels::cuda::testing_support {

const Interface* functions() {
  return mezzo_cuda_interface(kInterfaceVersion);
}

std::string why_not() {
  return "";
}

}  // namespace mezzo::kernels::cuda::testing_support
