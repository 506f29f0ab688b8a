// What the emulation's files know of each other.
#pragma once

#include <cuda_runtime.h>

namespace mezzo_emulated {

/// The program's own run time; null: none.
const Runtime* runtime();

/// The calling thread's last error, which the first one stays until it is asked for.
void note_error(cudaError_t);

}  // namespace mezzo_emulated
