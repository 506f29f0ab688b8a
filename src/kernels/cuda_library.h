// The CUDA kernels, if there are any: a shared library of its own, opened only where a driver
// is.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/interface.h"

namespace mezzo::kernels {

/// The library's functions, or null if it is not there, or finds no device that it has code for.
/// Looked for once; from any thread.
const cuda::Interface* cuda_library();

/// As above, for one device: null as well where the library has no code for its generation, or
/// where CUDA cannot say now, of which it is asked again. No other device is touched.
const cuda::Interface* cuda_library(int device);

/// Why cuda_library() is null; empty if it is not.
std::string why_no_cuda_library();

/// Where the functions of a library may be used: what it says of each device is kept, unless it
/// could not say. Thread-safe.
class DevicesWithCode {
 public:
  explicit DevicesWithCode(const cuda::Interface&);
  int count() const { return static_cast<int>(known_.size()); }
  bool has(int device) const;
  /// The last report of CUDA that it could not say; empty: it always could.
  std::string last_error() const;

 private:
  const cuda::Interface& functions_;
  // Asking makes a context on a device, some hundred megabytes of its memory, so that only those in
  // use are asked.
  mutable std::vector<std::atomic<cuda::Code>> known_;
  mutable std::mutex mutex_;
  mutable std::string last_error_;
};

/// For tests and programs that know where the file is: must come before the first cuda_library().
void set_cuda_library_path(const std::string& path);

/// Raises Error with what CUDA reported, unless `done`.
void check_cuda(const cuda::Interface&, bool done, std::string_view what);

}  // namespace mezzo::kernels
