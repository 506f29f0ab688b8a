// The kernel of operators that no template knows: rows that only some LibTorch versions have, and
// operators of users.
#pragma once

#include <ATen/core/stack.h>

#include "casting/row.h"
#include "core/torch.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace mezzo::casting {

/// The same decisions as Kernel, on a stack of boxed values and by the operator's schema.
class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(Row row) : row_(std::move(row)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  Row row_;
};

}  // namespace mezzo::casting
