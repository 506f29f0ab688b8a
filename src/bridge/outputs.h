// Do the outputs of one call lie on each other? The places of their elements are compared, so that
// columns of one matrix do not overlap. No tensor's memory is read.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/torch.h"

namespace mezzo::bridge {

/// Do two elements of this strided tensor share memory?
bool overlaps_itself(const at::Tensor&);

/// Do an element of one and an element of the other share memory? Both are strided, and have
/// elements, on one device.
bool overlap(const at::Tensor& a, const at::Tensor& b);

/// Throws ConfigError if a strided output overlaps itself or another. `name(i)` is what the
/// error calls output i.
void check_outputs(std::string_view where, const std::function<std::string(std::size_t)>& name,
                   at::TensorList out);
/// As above, called "out[i]".
void check_outputs(std::string_view where, const char* list, at::TensorList out);

}  // namespace mezzo::bridge
