// The functions of the built library, where there is a driver.
#include "kernels/cuda/device.h"
#include "kernels/cuda_library.h"
#include "support/built_files.h"

namespace mezzo::kernels::cuda::testing_support {

const Interface* functions() {
  static const Interface* const found = [] {
    set_cuda_library_path(mezzo::testing_support::built_file(MEZZO_CUDA_LIBRARY));
    return cuda_library();
  }();
  return found;
}

std::string why_not() {
  functions();
  return why_no_cuda_library();
}

}  // namespace mezzo::kernels::cuda::testing_support
