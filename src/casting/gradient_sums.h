// Sums of gradients in float: those that an operator's derivative makes, and those that autograd
// makes where a low tensor is used many times.
//
// Autograd casts what arrives at a node to the type that the node's input is said to have, and adds
// up in that type. A node whose input is said to be float gets a float sum of gradients, each as
// exact as it was given.
#pragma once

#include <tuple>

#include "core/torch.h"

namespace mezzo::casting {

/// The derivative that made this low result gets its gradient in float. Nothing happens where
/// there is none.
void take_gradient_in_float(const at::Tensor& result);
template <typename First, typename... Rest>
void take_gradient_in_float(const std::tuple<First, Rest...>& results) {
  take_gradient_in_float(std::get<0>(results));
}

/// As above, where the derivative gives a sparse gradient of the low tensor `of`: values of one
/// place are added up before they are rounded.
void add_up_sparse_gradient(const at::Tensor& result, const at::Tensor& of);
template <typename First, typename... Rest>
void add_up_sparse_gradient(const std::tuple<First, Rest...>& results, const at::Tensor& of) {
  add_up_sparse_gradient(std::get<0>(results), of);
}

/// When a backward pass reaches this float result, it looks at the graph behind it: what is low and
/// used more than a few times, weights and activations, gets its gradients added up in float and
/// rounded once. Nothing happens where there is no graph.
void add_up_in_float_behind(const at::Tensor& result);

}  // namespace mezzo::casting
