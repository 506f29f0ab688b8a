// One flat tensor for a list, and views back: gradient buckets, flat masters, one call for many
// tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "mezzo/export.h"

namespace mezzo {

/// All elements of these tensors, one after the other as they stand in memory, in a new 1-D tensor;
/// tensors with holes or overlaps as their elements are counted. All must have the first one's type
/// and device: otherwise ConfigError, which names the tensor. An empty list gives an empty float
/// tensor. Differentiable.
MEZZO_API at::Tensor flatten(at::TensorList tensors);

/// Views of `flat` with the sizes and the memory layout of `like`: the inverse of flatten(). `flat`
/// is 1-D, contiguous and has exactly as many elements: otherwise ConfigError.
MEZZO_API std::vector<at::Tensor> unflatten(const at::Tensor& flat, at::TensorList like);

}  // namespace mezzo
