#include "amp/gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "amp/module_types.h"
#include "bridge/device.h"
#include "bridge/multi_tensor.h"
#include "bridge/tensors.h"
#include "parallel/agreement.h"
#include "parallel/bucket_registry.h"
#include "scaling/to_device.h"

namespace mezzo::amp::detail {
namespace {

bool is_narrower(const at::Tensor& gradient, const at::Tensor& owner) {
  return gradient.defined() && is_low(gradient) && !is_low(owner);
}

}  // namespace

bool is_in_bucket(const at::Tensor& owner) {
  const at::Tensor& grad = owner.grad();
  return grad.defined() && grad.has_storage() && parallel::is_bucket_view(grad);
}

bool waits_for_reduction(const at::Tensor& owner) {
  if (!is_in_bucket(owner)) return false;
  const auto mark = parallel::bucket_of(owner.grad());
  return mark != nullptr && !mark->reduced;
}

at::Tensor take_gradient(at::Tensor& owner) {
  at::Tensor& grad = owner.mutable_grad();
  if (!is_in_bucket(owner)) return std::exchange(grad, at::Tensor());
  const at::NoGradGuard no_grad;
  at::Tensor copy = grad.detach().clone();
  grad.zero_();
  return copy;
}

void put_gradient(at::Tensor& owner, const at::Tensor& gradient) {
  at::Tensor& grad = owner.mutable_grad();
  if (!is_in_bucket(owner)) {
    grad = gradient;
    return;
  }
  if (gradient.is_same(grad)) return;
  const at::NoGradGuard no_grad;
  if (gradient.defined()) {
    grad.copy_(gradient);
  } else {
    grad.zero_();
  }
}

bool has_gradient(const at::Tensor& owner) {
  return owner.grad().defined() && !is_in_bucket(owner);
}

std::size_t first_nonzero(const std::vector<at::Tensor>& gradients) {
  if (gradients.empty()) return 0;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> flags;
  flags.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients) {
    flags.push_back(gradient.ne(0).any().to(gradients.front().device()));
  }
  const at::Tensor all = at::stack(flags).to(at::kCPU);
  const bool* flag = all.const_data_ptr<bool>();
  return static_cast<std::size_t>(std::find(flag, flag + flags.size(), true) - flag);
}

void drop_gradient(at::Tensor& owner) {
  clear_gradient(owner, /*set_to_none=*/true);
}

void free_gradient_type(at::Tensor& owner, bool free) {
  if (free) {
    owner.set_grad_dtype(std::nullopt);
    return;
  }
  at::Tensor& grad = owner.mutable_grad();
  grad = widened(grad, owner);
  owner.set_grad_dtype(owner.scalar_type());
}

at::Tensor widened(const at::Tensor& gradient, const at::Tensor& owner) {
  return is_narrower(gradient, owner) ? gradient.to(owner.scalar_type()) : gradient;
}

at::Tensor Widening::add(const at::Tensor& gradient, const at::Tensor& owner) {
  if (!is_narrower(gradient, owner) || gradient.layout() != at::kStrided ||
      gradient.requires_grad() ||
      bridge::cuda_kernels(gradient.device(), bridge::Family::kLists) == nullptr ||
      !bridge::is_dense(gradient)) {
    return widened(gradient, owner);
  }
  auto list = std::ranges::find(lists_, gradient.device(), &List::device);
  if (list == lists_.end()) list = lists_.insert(list, List{gradient.device(), {}, {}});
  list->low.push_back(gradient);
  list->wide.push_back(bridge::empty_laid_out_as(gradient, owner.scalar_type()));
  return list->wide.back();
}

void Widening::run() {
  for (const List& list : lists_) bridge::copy("gradients", list.low, list.wide);
  lists_.clear();
}

at::Tensor sum_of(const at::Tensor& sum, const at::Tensor& gradient) {
  if (!sum.defined()) return gradient;
  if (!gradient.defined()) return sum;
  if (sum.is_sparse() && !gradient.is_sparse()) return gradient.add(sum);
  // LibTorch adds no sparse halves on CPUs.
  if (sum.is_sparse() && is_low(sum)) {
    return sum.to(at::kFloat).add(gradient.to(at::kFloat)).to(sum.scalar_type());
  }
  const bool has_graph = sum.requires_grad() || gradient.requires_grad();
  return has_graph ? sum.add(gradient) : sum.add_(gradient);
}

void bring_to(at::Tensor& gradient, const scaling::ScaleValue& to,
              const scaling::ScaleValue* from) {
  if (!to.there.defined()) {
    const double before = from == nullptr ? 1.0 : scaling::multiplier(from->read());
    const double factor = scaling::multiplier(to.number) / before;
    if (factor != 1.0) gradient.mul_(factor);
    return;
  }
  at::Tensor factor = to.there.to(at::kDouble);
  if (from != nullptr) {
    factor = from->there.defined() ? factor.div(from->there)
                                   : factor.div(scaling::multiplier(from->number));
  }
  gradient.mul_(scaling::to_device(factor, gradient.device()));
}

void clear_gradient(at::Tensor& owner, bool set_to_none) {
  at::Tensor& grad = owner.mutable_grad();
  if (!grad.defined()) return;
  // One of zeros would still let the optimizer decay a weight that was frozen since.
  if (set_to_none && (!is_in_bucket(owner) || !owner.requires_grad())) {
    grad.reset();
    return;
  }
  if (grad.grad_fn()) {
    grad.detach_();
  } else {
    grad.requires_grad_(false);
  }
  grad.zero_();
}

}  // namespace mezzo::amp::detail
