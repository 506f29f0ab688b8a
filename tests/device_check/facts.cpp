// Facts about the machine, which every figure needs.
#include <torch/version.h>

#include <thread>

#include "device_check/parts.h"
#include "device_check/rates.h"
#include "kernels/cuda_library.h"
#include "mezzo/version.h"

namespace mezzo::device_check {

void check_facts(const Device& device, Results& results) {
  results.check("the machine", [&](Check& check) {
    check.figure("libtorch", TORCH_VERSION);
    check.figure("threads", std::thread::hardware_concurrency());
    check.figure("device", device.place().str());
    if (device.cuda() != nullptr) check.figure("card", device.cuda()->describe());
    if (device.is_cuda()) {
      const bool ours = kernels::cuda_library(device.place().index()) != nullptr;
      check.figure("kernels", ours ? "ours" : kernels::why_no_cuda_library());
      check.expect(ours, kernels::why_no_cuda_library());
    }
  });
  results.check("the rate of copies",
                [&](Check& check) { check.figure("bytes_per_second", copy_rate(device)); });
  for (const auto type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    results.check(
        std::string("the rate of matrix products in ") + c10::toString(type),
        [&](Check& check) { check.figure("operations_per_second", matrix_rate(device, type)); });
  }
}

}  // namespace mezzo::device_check
