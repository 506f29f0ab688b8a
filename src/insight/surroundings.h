// State that a forward pass moves besides its result.
#pragma once

#include <ATen/core/Generator.h>

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

  /// The states of the first of the default generators; what is undefined stays as it is.
  void set_generators(const std::vector<at::Tensor>& states);

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
};

}  // namespace mezzo::insight
