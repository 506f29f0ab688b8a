// State that a forward pass moves besides its result.
#pragma once

#include <utility>
#include <vector>

#include "core/torch.h"

namespace mezzo::insight {

/// Generators and buffers as they are, given back at the end.
class Surroundings {
 public:
  explicit Surroundings(const std::vector<at::Tensor>& buffers);
  ~Surroundings();
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;

 private:
  std::vector<at::Tensor> states_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
};

}  // namespace mezzo::insight
