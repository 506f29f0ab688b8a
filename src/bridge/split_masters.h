// Float masters split into bfloat16 weights and 16 bits beside them, as tensors. The decision for
// one element is in kernels/split_master.h.
#pragma once

#include "core/torch.h"

namespace mezzo::bridge {

/// The tensors beside the weight of a split master.
struct SplitRest {
  at::Tensor remainder;  // 16 bits an element (short), in the order of the weight's memory
  at::Tensor ties;       // one bit an element, 32 to an int

  bool defined() const { return remainder.defined(); }
};

/// Can masters of such a weight be split: bfloat16, dense, on a device that has kernels?
bool can_split(const at::Tensor& weight);

/// Splits a float master of the weight's layout. The weight gets what the master rounds to, the
/// same bits as by copy_() unless it is a NaN; its version is not moved.
SplitRest split_master(const at::Tensor& master, const at::Tensor& weight);

/// The master again, a new float tensor of the weight's layout.
at::Tensor join_master(const at::Tensor& weight, const SplitRest& rest);

/// A float tensor of the same sizes and strides without memory. Reading its values is an error
/// that says `why`; it may have a gradient and stand in lists like any other.
at::Tensor without_memory(const at::Tensor& like, const std::string& why);

/// False for such a tensor.
bool has_memory(const at::Tensor& tensor);

}  // namespace mezzo::bridge
