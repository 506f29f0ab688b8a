// How operators of a 16-bit type are computed: on processors, which every scope asks, and on CUDA
// devices.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "kernels/cuda_driver.h"
#include "mezzo/hardware.h"

namespace mezzo {

/// Are matrix operators of float16 or bfloat16 computed in float here? Cheap but for the first call
/// of a type, which measures. False for any other type. Thread-safe.
bool emulated(at::ScalarType low);

/// compute_choice() without CUDA devices: no driver is started.
ComputeChoice processor_choice(at::ScalarType low);

/// A CUDA device as a user knows it: "cuda:0 (Tesla T4, compute capability 7.5)".
std::string name_of(const kernels::CudaDevice&, std::size_t index);

/// Why the 16-bit type saves no time on the device, a clause; empty if it does.
std::string why_slow(const kernels::CudaDevice&, at::ScalarType low);

}  // namespace mezzo
