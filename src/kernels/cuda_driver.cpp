#include "kernels/cuda_driver.h"

#include <array>

#include "platform/libraries.h"

namespace mezzo::kernels {
namespace {

// From cuda.h, where they have these numbers for good.
constexpr int kSuccess = 0;
constexpr int kNotCapturing = 0;
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

std::string& library_of_this_machine() {
  static std::string name = CudaDriver::kLibrary;
  return name;
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(platform::find_symbol(library, name));
}

}  // namespace

CudaDriver::CudaDriver(const std::string& library) {
  void* const opened = platform::open_library(library);
  if (opened == nullptr) return;
  find(opened, "cuInit", initialise_);
  find(opened, "cuDeviceGetCount", count_);
  find(opened, "cuDeviceGet", get_);
  find(opened, "cuDeviceGetName", name_);
  find(opened, "cuDeviceGetAttribute", attribute_);
  find(opened, "cuStreamGetCaptureInfo_v2", capture_);
}

const CudaDriver& CudaDriver::of_this_machine() {
  static const CudaDriver driver(library_of_this_machine());
  return driver;
}

void CudaDriver::replace_by(const std::string& library) {
  library_of_this_machine() = library;
}

std::vector<CudaDevice> CudaDriver::devices() const {
  std::vector<CudaDevice> all;
  const bool can_ask = initialise_ && count_ && get_ && name_ && attribute_;
  int count = 0;
  if (!can_ask || initialise_(0) != kSuccess || count_(&count) != kSuccess) return all;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CudaDevice& device = all.emplace_back();
    std::array<char, 256> name{};
    int handle = 0;
    if (get_(&handle, ordinal) != kSuccess ||
        attribute_(&device.major, kCapabilityMajor, handle) != kSuccess ||
        attribute_(&device.minor, kCapabilityMinor, handle) != kSuccess)
      return {};
    if (name_(name.data(), static_cast<int>(name.size()) - 1, handle) == kSuccess)
      device.name = name.data();
  }
  return all;
}

std::uint64_t CudaDriver::capture_of(void* stream) const {
  if (capture_ == nullptr) return 0;
  int status = kNotCapturing;
  std::uint64_t number = 0;
  // The default stream answers with an error while another is captured.
  const int result = capture_(stream, &status, &number, nullptr, nullptr, nullptr);
  return result != kSuccess || status == kNotCapturing ? 0 : number + 1;
}

}  // namespace mezzo::kernels
