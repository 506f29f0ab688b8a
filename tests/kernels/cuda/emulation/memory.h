// The emulation's device memory.
#pragma once

#include <cstddef>

namespace mezzo_emulated {

/// Ends before a page that nobody may touch, begins 64 bytes aligned, and is full of bytes of 0xff:
/// NaN in every type.
void* allocate(std::size_t bytes);
/// Ends the program if it was not allocated, or if somebody wrote beside it.
void release(void* memory);

}  // namespace mezzo_emulated
