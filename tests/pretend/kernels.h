// Tensors as kernels of a device see them, and the queueing of a kernel.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "streams.h"

namespace mezzo::pretend {

/// A tensor of a device without its memory: where it is and how it is laid out. Nothing keeps the
/// memory until the kernel runs but the order of the stream, as on a GPU.
struct Place {
  void* address = nullptr;  // as kernels see it
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  at::ScalarType type = at::kFloat;
  bool negative = false;
  bool conjugate = false;

  explicit Place(const at::Tensor&);
  /// The CPU tensor over those bytes.
  at::Tensor tensor() const;
};

bool is_on_device(const at::Tensor&);

/// While it lives, the thread runs a kernel: operators are LibTorch's CPU kernels and nothing else.
class InKernel {
 public:
  InKernel();
  ~InKernel();
  InKernel(const InKernel&) = delete;
  InKernel& operator=(const InKernel&) = delete;
  static bool here();

 private:
  struct Guards;
  std::unique_ptr<Guards> guards_;
};

using Kernel = std::function<void(const std::vector<at::Tensor>&)>;

/// Queues a kernel over tensors of a device, undefined ones included, on the current stream.
void queue_kernel(const std::vector<at::Tensor>&, Kernel);

/// Every operator that has no row of its own.
void run_operator(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);

}  // namespace mezzo::pretend
