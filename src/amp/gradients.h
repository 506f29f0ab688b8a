// Taking gradients from tensors and giving them back.
//
// A gradient may be a view into a bucket that a reducer of parallel training fills: such a one is
// never replaced or set to undefined, since the next backward pass must add into the bucket.
#pragma once

#include <cstddef>
#include <vector>

#include "core/torch.h"
#include "scaling/loss_scaler.h"

namespace mezzo::amp::detail {

/// The gradient, which the owner then has no more; a bucket's is copied and zeroed.
at::Tensor take_gradient(at::Tensor& owner);

/// The owner's gradient becomes this one, undefined included; a bucket's gets the values.
void put_gradient(at::Tensor& owner, const at::Tensor& gradient);

/// Is the gradient a view into a bucket?
bool is_in_bucket(const at::Tensor& owner);

/// ... which was not averaged since a backward pass added to it?
bool waits_for_reduction(const at::Tensor& owner);

/// Did a backward pass leave a gradient here? A bucket's is always there, and says nothing.
bool has_gradient(const at::Tensor& owner);

/// The first of these gradients that is not all zeros; their number if there is none. Reads
/// them, and a device once.
std::size_t first_nonzero(const std::vector<at::Tensor>& gradients);

/// The owner has no gradient any more; a bucket's is zeroed.
void drop_gradient(at::Tensor& owner);

/// Backward passes may leave a gradient of any type with this leaf: a low one that a cast's
/// backward made then arrives as it is. Without `free` gradients have the leaf's type again, the
/// one that is there too.
void free_gradient_type(at::Tensor& owner, bool free);

/// The gradient in the owner's type at least, so that others can be added without loss.
at::Tensor widened(const at::Tensor& gradient, const at::Tensor& owner);

/// As above, for many gradients of low types: on devices with list kernels one copy of the list
/// widens them all.
class Widening {
 public:
  /// The gradient as `widened` gives it; it has its values after `run`.
  at::Tensor add(const at::Tensor& gradient, const at::Tensor& owner);
  void run();

 private:
  struct List {
    at::Device device;
    std::vector<at::Tensor> low, wide;
  };
  std::vector<List> lists_;
};

/// The sum of both, in the sum's own memory unless something forbids it; either may be undefined.
at::Tensor sum_of(const at::Tensor& sum, const at::Tensor& gradient);

/// Multiplies a gradient that carries the scale `from`, or none (null), so that it carries `to`.
void bring_to(at::Tensor& gradient, const scaling::ScaleValue& to, const scaling::ScaleValue* from);

/// As torch::optim::Optimizer::zero_grad does for one parameter.
void clear_gradient(at::Tensor& owner, bool set_to_none);

}  // namespace mezzo::amp::detail
