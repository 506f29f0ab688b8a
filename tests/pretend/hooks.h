// Page-locked memory of the host.
#pragma once

#include <memory>

namespace mezzo::pretend {

/// The piece of page-locked memory that holds the address; null if none does. Who keeps it keeps
/// the memory.
std::shared_ptr<void> pinned_piece(const void* address);

}  // namespace mezzo::pretend
