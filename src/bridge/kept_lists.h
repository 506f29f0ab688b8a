// Lists of the CUDA library that functions without a memory of their own call it with.
#pragma once

#include "bridge/device.h"

namespace mezzo::bridge {

/// This thread's list for calls on this stream, the same one each time. Kept while the process
/// lives, also when the thread has ended: then the next thread takes it over.
kernels::cuda::List* kept_list(const kernels::cuda::Interface&, const at::Device&,
                               kernels::cuda::Stream);

}  // namespace mezzo::bridge
