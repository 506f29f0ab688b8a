// LibTorch's threads as the kernels' workers.
#pragma once

#include "kernels/workers.h"

namespace mezzo::bridge {

/// at::parallel_for over at::get_num_threads() threads. Lives as long as the process.
const kernels::Workers& torch_workers();

}  // namespace mezzo::bridge
