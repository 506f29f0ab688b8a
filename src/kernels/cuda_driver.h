// What CUDA's driver says by itself: no header of CUDA is needed, and no context on a device is
// made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mezzo::kernels {

struct CudaDevice {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int major = 0;     // of its compute capability
  int minor = 0;
};

class CudaDriver {
 public:
  /// Opens the library if it is there.
  explicit CudaDriver(const std::string& library = kLibrary);
  static const CudaDriver& of_this_machine();
  /// For tests, before the first question to of_this_machine(): another library in its place.
  static void replace_by(const std::string& library);

  /// The devices that the driver offers to this process, in its order; none where it is not there
  /// or refuses. The driver is started, without a context. Thread-safe.
  std::vector<CudaDevice> devices() const;

  /// The capture of a graph that a stream (a cudaStream_t) takes part in, a number that no other
  /// capture of this process has; 0: none. Thread-safe.
  std::uint64_t capture_of(void* stream) const;

  static constexpr const char* kLibrary = "libcuda.so.1";

 private:
  using Initialise = int (*)(unsigned flags);
  using Count = int (*)(int* count);
  using Get = int (*)(int* device, int ordinal);
  using Name = int (*)(char* name, int size, int device);
  using Attribute = int (*)(int* value, int attribute, int device);
  // A stream; the status, the number; a graph, its dependencies and how many they are, if wanted.
  using Capture = int (*)(void*, int*, std::uint64_t*, void*, void*, void*);

  Initialise initialise_ = nullptr;
  Count count_ = nullptr;
  Get get_ = nullptr;
  Name name_ = nullptr;
  Attribute attribute_ = nullptr;
  Capture capture_ = nullptr;
};

}  // namespace mezzo::kernels
