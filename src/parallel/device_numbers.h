// Numbers that a device computes and the host reads later, when they are there.
#pragma once

#include <c10/core/Event.h>

#include <optional>
#include <vector>

#include "core/torch.h"

namespace mezzo::parallel {

class DeviceNumbers {
 public:
  /// Queues a copy to the host behind what the current stream has to do; nothing waits. CPU tensors
  /// are copied at once.
  explicit DeviceNumbers(const at::Tensor& numbers);

  /// Are they there? Does not wait.
  bool arrived() const;
  /// Waits until they are there: for nothing that was queued after the copy.
  std::vector<double> read() const;

 private:
  at::Tensor here_;
  std::optional<c10::Event> copied_;  // none: the numbers were on the host
};

}  // namespace mezzo::parallel
