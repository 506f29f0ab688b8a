// Batch norms of a part that runs twice: their running statistics move once.
#pragma once

#include <ATen/record_function.h>

#include <utility>
#include <vector>

#include "core/torch.h"

namespace mezzo::recomputation {

/// While it lives, it watches this thread for batch norms that train and remembers what their
/// running statistics and their counter of batches were; in the end they are so again. Nests.
class KeptStatistics {
 public:
  KeptStatistics();
  ~KeptStatistics();
  KeptStatistics(const KeptStatistics&) = delete;
  KeptStatistics& operator=(const KeptStatistics&) = delete;

  /// Sees an operator that begins.
  void see(const at::RecordFunction& call);

 private:
  void keep(const at::Tensor& tensor, const at::Tensor& value);
  void see_batch_norm(c10::ArrayRef<const c10::IValue> inputs);

  KeptStatistics* outer_;
  at::CallbackHandle handle_;
  std::pair<at::Tensor, at::Tensor> counted_;  // the last counter that moved, and its value before
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  // each with its value before
};

}  // namespace mezzo::recomputation
