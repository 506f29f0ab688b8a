// The last call of a network, held while skipped steps are to be explained.
#pragma once

#include <functional>
#include <vector>

#include "core/torch.h"

namespace mezzo::amp::detail {

struct LastCall {
  std::function<std::vector<at::Tensor>()> again;  // the tensors in its results
  std::vector<at::Tensor> gradients;  // that reached them, times the loss scale; undefined: none
};

}  // namespace mezzo::amp::detail
