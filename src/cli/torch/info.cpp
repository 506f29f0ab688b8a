#include "core/torch.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/torch/part.h"
#include "core/scalar_type.h"
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

Json proofs() {
  Json all = Json::array();
  for (const KernelProof& proof : kernel_proofs()) {
    all.push_back({{"device", proof.device},
                   {"family", proof.family},
                   {"holds", proof.holds},
                   {"difference", proof.difference}});
  }
  return all;
}

Json compute_of(const ComputeChoice& choice) {
  return {{"mode", choice.mode == ComputeMode::kEmulated ? "emulated" : "native"},
          {"why", choice.why},
          {"time_over_float32", choice.low_over_float},
          {"cuda", choice.cuda}};
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
  Json info;
  info["libtorch"] = TORCH_VERSION;
  info["library"] = version();
  info["devices"] = devices();
  info["kernel_set"] = kernel_set();
  info["kernel_sets"] = kernel_sets();
  info["cuda_kernels"] = why_no_cuda_kernels().empty();
  info["kernel_proofs"] = proofs();
  double float_rate = 0;
  Json rates;
  Json compute;
  for (const DType low : kLowTypes) {
    const ComputeChoice choice = compute_choice(scalar_type_of(low));
    float_rate = std::max(float_rate, choice.float_rate);
    const std::string name(row_of(low).name);
    rates[name] = choice.low_rate;
    compute[name] = compute_of(choice);
  }
  info["rates"] = {{"float32", float_rate}};
  info["rates"].update(rates);
  info["rates"]["unit"] = "GFLOP/s";
  info["rates"]["work"] = "matrix product 256x256x256 on one thread";
  info["compute"] = compute;
  info["absent"] = absent();
  return info;
}

}  // namespace mezzo::cli
