// Where tests of what is above the CUDA kernels run them: compiled for the processor, and on a GPU
// where there is one.
#pragma once

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>

#include <string>

#include "bridge/device.h"
#include "kernels/cuda_library.h"
#include "platform/libraries.h"
#include "support/built_files.h"

namespace mezzo::testing_cuda {

enum class Place { kEmulation, kGpu };

inline std::string name_of(Place place) {
  return place == Place::kGpu ? "Gpu" : "Emulation";
}

/// The kernels compiled for the processor.
inline const kernels::cuda::Interface* emulation() {
  static const kernels::cuda::Interface* const functions = [] {
    std::string why;
    void* library = platform::open_library(testing_support::built_file(MEZZO_CUDA_EMULATION), &why);
    EXPECT_NE(library, nullptr) << why;
    const auto entry = reinterpret_cast<MezzoCudaInterface>(
        platform::find_symbol(library, "mezzo_cuda_interface"));
    return entry(kernels::cuda::kInterfaceVersion);
  }();
  return functions;
}

/// Looks for a GPU before the first test: LibTorch asks once whether its CUDA part is loaded, for
/// the first random number say, and keeps to the answer.
class LookForGpu final : public testing::Environment {
 public:
  void SetUp() override { why_not() = find(); }
  static std::string& why_not() {
    static std::string why = "nobody has looked for a GPU yet";
    return why;
  }

 private:
  static std::string find() {
#ifdef MEZZO_CUDA_LIBRARY
    if (!c10::impl::hasDeviceGuardImpl(at::kCUDA)) {
      kernels::set_cuda_library_path(testing_support::built_file(MEZZO_CUDA_LIBRARY));
    }
#endif
    if (kernels::cuda_library() == nullptr) return kernels::why_no_cuda_library();
    // A process can have been given such a device, which is none of LibTorch's own.
    if (c10::impl::hasDeviceGuardImpl(at::kCUDA)) return "";
    std::string why;
    if (platform::open_library("libtorch_cuda.so", &why) == nullptr) return why;
    return at::hasCUDA() ? "" : "LibTorch finds no CUDA device";
  }
};
inline testing::Environment* const looks_for_gpu =
    testing::AddGlobalTestEnvironment(new LookForGpu);

/// Why there is no GPU with our kernels; empty where there is.
inline const std::string& why_no_gpu() {
  return LookForGpu::why_not();
}

inline at::Device device_of(Place place) {
  return place == Place::kGpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
}

/// While it lives, tensors of device_of(place) are worked on by the CUDA kernels.
class KernelsAt {
 public:
  explicit KernelsAt(Place place) {
    if (place == Place::kEmulation) bridge::choose_kernels(at::kCPU, emulation());
  }
  ~KernelsAt() { bridge::choose_usual_kernels(at::kCPU); }
  KernelsAt(const KernelsAt&) = delete;
  KernelsAt& operator=(const KernelsAt&) = delete;
};

/// A test at both places, skipped, visibly, where there is no GPU.
class AtPlaces : public testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (place() == Place::kGpu && !why_no_gpu().empty()) GTEST_SKIP() << why_no_gpu();
  }
  static Place place() { return GetParam(); }
  static at::Device device() { return device_of(place()); }
};

}  // namespace mezzo::testing_cuda
