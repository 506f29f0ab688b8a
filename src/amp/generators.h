// The random generators that operators use when none is given.
#pragma once

#include <ATen/core/Generator.h>

#include <vector>

namespace mezzo::amp::detail {

/// The CPU's, then one for each CUDA device. Lock a generator's mutex around its state.
std::vector<at::Generator> default_generators();

/// Their states, in that order.
std::vector<at::Tensor> states_of_generators();

/// As above, but undefined for devices that this process has not used, since asking would start
/// them, and for all devices while one is being captured.
std::vector<at::Tensor> states_of_used_generators();

/// Gives such states back; a generator whose state is undefined or missing stays as it is.
void set_states_of_generators(const std::vector<at::Tensor>& states);

}  // namespace mezzo::amp::detail
