// `scalar / tensor`, which LibTorch composes of an empty tensor of the tensor's type, fill_ and
// div_: in place, so that it stays in 16 bits.
#pragma once

#include "core/torch.h"

namespace mezzo::casting {

/// fill_ was called on this tensor on this thread.
void note_filled(const at::Tensor& self) noexcept;

/// div_ is about to be called on this tensor. If it is what was filled last, and low, the way to
/// have the division in float is reported once.
void tell_reversed_division(const at::Tensor& self);

}  // namespace mezzo::casting
