// Types and sizes of tensors, for messages.
#pragma once

#include <string>
#include <vector>

#include "core/torch.h"

namespace mezzo::deploy {

/// "float32 [2, 3]".
std::string text_of_sizes(at::ScalarType type, c10::IntArrayRef sizes);

/// "input_0 float32 [2, 3], input_1 int64 [2]": all tensors in the values, depth first.
std::string text_of_sizes(const std::vector<c10::IValue>& values);

}  // namespace mezzo::deploy
