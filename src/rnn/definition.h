// The differences between the recurrent modules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "casting/row.h"
#include "core/torch.h"
#include "mezzo/rnn.h"

namespace mezzo::rnn::detail {

/// One layer and direction.
struct LayerWeights {
  at::Tensor weight_ih, weight_hh, bias_ih, bias_hh;  // biases undefined without bias
  at::Tensor weight_hr;                               // undefined without projection
  std::vector<ExtraWeight> extra;
  std::vector<at::Tensor> extra_tensors;

  /// All that are defined, in the order of their registration.
  std::vector<at::Tensor> all() const;
};

/// A call of LibTorch's kernel, with its arguments.
struct KernelCall {
  const at::Tensor& x;
  const at::Tensor& batch_sizes;  // undefined: x is padded
  const Hidden& hidden;
  const std::vector<at::Tensor>& weights;
  const Options& options;
  bool training;
};

struct Definition {
  std::string name;
  Cell cell;
  casting::Row row;  // of the operator whose class holds
  Output (*kernel)(const KernelCall&) = nullptr;
  bool kernel_projects = false;
  std::int64_t cudnn_mode = -1;
};

Output lstm_kernel(const KernelCall& call);
Output gru_kernel(const KernelCall& call);
Output relu_kernel(const KernelCall& call);
Output tanh_kernel(const KernelCall& call);

Hidden lstm_step(const Step& step);
Hidden gru_step(const Step& step);
Hidden relu_step(const Step& step);
Hidden tanh_step(const Step& step);
Hidden mlstm_step(const Step& step);

}  // namespace mezzo::rnn::detail
