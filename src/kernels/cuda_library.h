// The CUDA kernels, if there are any: a shared library of its own, opened only where a driver
// is.
#pragma once

#include <string>
#include <string_view>

#include "kernels/cuda/interface.h"

namespace mezzo::kernels {

/// The library's functions, or null if it is not there, or finds no device that it has code for.
/// Looked for once; from any thread.
const cuda::Interface* cuda_library();

/// As above, for one device: null as well where the library has no code for its generation. No
/// other device is touched.
const cuda::Interface* cuda_library(int device);

/// Why cuda_library() is null; empty if it is not.
const std::string& why_no_cuda_library();

/// For tests and programs that know where the file is: must come before the first cuda_library().
void set_cuda_library_path(const std::string& path);

/// Raises Error with what CUDA reported, unless `done`.
void check_cuda(const cuda::Interface&, bool done, std::string_view what);

}  // namespace mezzo::kernels
