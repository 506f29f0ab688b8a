// Buffers that a module writes while it runs.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <utility>
#include <vector>

namespace mezzo::deploy {

/// Gives the buffers of a module the values back that they had.
class KeptBuffers {
 public:
  explicit KeptBuffers(const torch::jit::Module& module);
  ~KeptBuffers();
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  // the buffer, and a copy
};

}  // namespace mezzo::deploy
