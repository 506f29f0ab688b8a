#include "core/torch.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <nlohmann/json.hpp>

#include "cli/torch/part.h"
#include "mezzo/hardware.h"
#include "mezzo/version.h"

namespace mezzo::cli {
namespace {

using Json = nlohmann::ordered_json;

int cuda_devices() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) return 0;
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
}

Json devices() {
  Json all = Json::array();
  all.push_back({{"type", "cpu"},
                 {"threads", at::get_num_threads()},
                 {"libtorch_kernels", at::get_cpu_capability()}});
  for (int i = 0; i < cuda_devices(); ++i) all.push_back({{"type", "cuda"}, {"index", i}});
  return all;
}

Json compute_of(const ComputeChoice& choice) {
  return {{"mode", choice.mode == ComputeMode::kEmulated ? "emulated" : "native"},
          {"why", choice.why},
          {"time_over_float32", choice.low_over_float}};
}

Json absent() {
  Json all = Json::array();
  if (cuda_devices() == 0) {
    all.push_back({{"what", "CUDA"}, {"cost", "everything runs on the processor"}});
  } else if (const std::string why = why_no_cuda_kernels(); !why.empty()) {
    all.push_back({{"what", "the CUDA kernels"},
                   {"cost", "fused steps and layers are slower on CUDA devices: " + why}});
  }
  if (!at::hasMKLDNN()) {
    all.push_back({{"what", "oneDNN"},
                   {"cost", "16-bit products, convolutions and recurrent layers are slower"}});
  }
  return all;
}

}  // namespace

nlohmann::ordered_json torch_info(const nlohmann::ordered_json&) {
  const ComputeChoice half = compute_choice(at::kHalf);
  const ComputeChoice bfloat16 = compute_choice(at::kBFloat16);
  Json info;
  info["libtorch"] = TORCH_VERSION;
  info["library"] = version();
  info["devices"] = devices();
  info["kernel_set"] = kernel_set();
  info["kernel_sets"] = kernel_sets();
  info["cuda_kernels"] = why_no_cuda_kernels().empty();
  info["rates"] = {{"float32", std::max(half.float_rate, bfloat16.float_rate)},
                   {"bfloat16", bfloat16.low_rate},
                   {"float16", half.low_rate},
                   {"unit", "GFLOP/s"},
                   {"work", "matrix product 256x256x256 on one thread"}};
  info["compute"] = {{"float16", compute_of(half)}, {"bfloat16", compute_of(bfloat16)}};
  info["absent"] = absent();
  return info;
}

}  // namespace mezzo::cli
