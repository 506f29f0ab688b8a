// Counts of what a host did to the devices, and the stacks of its waits.
#pragma once

#include <cstdint>
#include <string>

namespace mezzo::pretend {

enum class Wait { kStream, kDevice, kEvent, kCopy, kScalar, kShape };

/// A wait for `what`, with its stack where somebody watches.
void count_wait(Wait, const std::string& what);
void count_copy_to_host(std::int64_t bytes);
void count_copy_to_device(std::int64_t bytes);

}  // namespace mezzo::pretend
