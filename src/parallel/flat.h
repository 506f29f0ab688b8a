// Tensors by type, back to back.
#pragma once

#include <vector>

#include "core/torch.h"

namespace mezzo::parallel {

/// Indices of tensors with the same dtype and device, groups in the order of their first member.
std::vector<std::vector<std::size_t>> by_type(const std::vector<at::Tensor>& tensors);

/// The chosen tensors' elements in one contiguous tensor of the first one's type.
at::Tensor flatten_chosen(const std::vector<at::Tensor>& tensors,
                          const std::vector<std::size_t>& chosen);

/// As above, for this type and device, with `extra` elements of zero behind.
at::Tensor flatten_chosen(const std::vector<at::Tensor>& tensors,
                          const std::vector<std::size_t>& chosen, const at::TensorOptions& options,
                          std::int64_t extra);

/// Copies the elements back.
void unflatten_chosen(const at::Tensor& flat, const std::vector<at::Tensor>& tensors,
                      const std::vector<std::size_t>& chosen);

}  // namespace mezzo::parallel
