// Page-locked memory of the host.
#pragma once

#include <memory>

namespace mezzo::pretend {

/// The piece of page-locked memory that holds the address; null if none does. An owner of it
/// keeps the memory.
std::shared_ptr<void> pinned_piece(const void* address);

}  // namespace mezzo::pretend
