// The random generators that operators use when none is given.
#pragma once

#include <ATen/core/Generator.h>

#include <vector>

namespace mezzo::amp::detail {

/// The CPU's.
at::Generator host_generator();

/// The CPU's, then one for each CUDA device. Lock a generator's mutex around its state.
std::vector<at::Generator> default_generators();

}  // namespace mezzo::amp::detail
