// The tensors in a value of TorchScript.
#pragma once

#include <vector>

#include "core/torch.h"

namespace mezzo::deploy {

/// All tensors in a value, depth first. Undefined ones are passed over, as what is None.
void collect_tensors(const c10::IValue& value, std::vector<at::Tensor>* tensors);

}  // namespace mezzo::deploy
