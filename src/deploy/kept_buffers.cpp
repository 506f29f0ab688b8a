#include "deploy/kept_buffers.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>

#include "core/torch.h"

namespace mezzo::deploy {

KeptBuffers::KeptBuffers(const torch::jit::Module& module) {
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffer.defined()) kept_.emplace_back(buffer, buffer.detach().clone());
  }
}

KeptBuffers::~KeptBuffers() {
  const at::NoGradGuard no_grad;
  for (const auto& [buffer, before] : kept_) {
    if (!at::equal(buffer, before)) buffer.copy_(before);
  }
}

}  // namespace mezzo::deploy
