// Timing of what is queued on a CUDA device.
#pragma once

#include <functional>
#include <string>

#include "harness.h"

namespace mezzo::bench {

/// Loads LibTorch's CUDA part. Returns why nothing can be measured there; empty: it can.
std::string why_no_cuda();

/// As interleave(): each repeat queues calls and waits for the device once, after the last.
Pair interleave_on_cuda(const std::function<void()>& ours, const std::function<void()>& peer,
                        int repeats);

/// Bytes per second of a large copy on the device, read and written together.
double copy_bandwidth_on_cuda();

/// One line of the report, with the share of `bandwidth` that moving `bytes` in our time is.
void add_on_cuda(Report&, const std::string& name, const std::string& peer_name, const Pair&,
                 std::optional<double> target, std::optional<double> bytes, double bandwidth);

}  // namespace mezzo::bench
