// Buffers whose values are positions, frequencies or angles.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "core/torch.h"

namespace mezzo::amp::detail {

/// Is this a buffer that a network multiplies with positions, or takes sines and cosines of, as far
/// as its values can say it: frequencies (a geometric series), angles (rows that are 0, 1, 2, ...
/// times one row) or positions (whole numbers with one step)? And would `low` change its values?
/// In 16 bits the cosine at position 2,047 would be that of another angle.
bool is_position_table(const at::Tensor& buffer, at::ScalarType low);

/// The buffers of a network that are, with their names.
std::vector<std::pair<std::string, at::Tensor>> position_tables_in(const torch::nn::Module& root,
                                                                   at::ScalarType low);

}  // namespace mezzo::amp::detail
