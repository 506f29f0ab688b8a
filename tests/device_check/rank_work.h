// The work of one process of several, which this program starts as itself.
#pragma once

#include <string>

#include "device_check/device.h"

namespace mezzo::device_check {

/// The exit code: 0, or 1 after an error, which is written to standard error.
int run_rank_work(const std::string& name, const Device& device);

}  // namespace mezzo::device_check
