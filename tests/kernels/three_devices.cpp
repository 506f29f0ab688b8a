// Three devices, as CUDA's driver speaks of them, and streams: one of an odd address is captured,
// with the address for a number.
#include <array>
#include <cstdint>
#include <cstring>

namespace {

struct Device {
  const char* name;
  int major, minor;
};
constexpr std::array kDevices{Device{"Tesla P100", 6, 0}, Device{"Tesla T4", 7, 5},
                              Device{"NVIDIA H100", 9, 0}};
// Devices have handles that are not their place.
constexpr int kFirstHandle = 40;
constexpr int kSuccess = 0, kNotInitialised = 3, kCaptureImplicit = 906;
bool is_initialised = false;

const Device& device_of(int handle) {
  return kDevices[static_cast<std::size_t>(handle - kFirstHandle)];
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int cuInit(unsigned) {
  is_initialised = true;
  return kSuccess;
}
EXPORTED int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(kDevices.size());
  return is_initialised ? kSuccess : kNotInitialised;
}
EXPORTED int cuDeviceGet(int* device, int ordinal) {
  *device = kFirstHandle + ordinal;
  return kSuccess;
}
EXPORTED int cuDeviceGetName(char* name, int size, int device) {
  std::strncpy(name, device_of(device).name, static_cast<std::size_t>(size));
  return kSuccess;
}
EXPORTED int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? device_of(device).major : device_of(device).minor;
  return attribute == 75 || attribute == 76 ? kSuccess : kNotInitialised;
}
EXPORTED int cuStreamGetCaptureInfo_v2(void* stream, int* status, std::uint64_t* number, void*,
                                       void*, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(stream);
  *status = address == 0 ? 1 : static_cast<int>(address % 2);
  *number = address;
  return address == 0 ? kCaptureImplicit : kSuccess;
}
