// Bytes of images as the floats that a network takes.
#pragma once

#include <ATen/core/Tensor.h>

namespace examples::imagenet {

/// [N, side, side, 3] bytes as [N, 3, side, side] floats: minus ImageNet's mean, divided by its
/// deviation. On processors this is one loop on the calling thread, which leaves the others alone.
at::Tensor normalized(const at::Tensor& bytes, bool channels_last);

}  // namespace examples::imagenet
