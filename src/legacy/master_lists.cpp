// Masters as plain lists, for loops that copy by hand.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/zeros_like.h>

#include "core/torch.h"
#include "mezzo/fp16_utils.h"
#include "mezzo/tensor_lists.h"

namespace mezzo::fp16_utils {
namespace {

constexpr std::string_view kPrepare = "prep_param_lists";

void check_one_type(const torch::nn::Module& module) {
  const at::Tensor* first = nullptr;
  std::string first_name;
  const auto parameters = module.named_parameters();
  for (const auto& item : parameters) {
    if (!item.value().requires_grad()) continue;
    if (first == nullptr) {
      first = &item.value();
      first_name = item.key();
      continue;
    }
    if (item.value().scalar_type() == first->scalar_type() &&
        item.value().device() == first->device()) {
      continue;
    }
    raise<ConfigError>(kPrepare, "a flat master needs parameters of one type and device, but '",
                       first_name, "' is ", first->scalar_type(), " on ", first->device(), " and '",
                       item.key(), "' is ", item.value().scalar_type(), " on ",
                       item.value().device(), "; leave flat_master out");
  }
}

/// Throws if the masters are not those of the network's parameters.
void check_lists(std::string_view where, const std::vector<at::Tensor>& model,
                 const std::vector<at::Tensor>& master, bool flat_master) {
  if (flat_master) {
    std::int64_t count = 0;
    for (const at::Tensor& each : model) count += each.numel();
    if (master.size() == 1 && master.front().dim() == 1 && master.front().numel() == count) return;
    raise<ConfigError>(where, "expected one flat master of ", count,
                       " elements, as prep_param_lists(module, true) makes it, got ", master.size(),
                       master.empty() ? "" : " of which the first has ",
                       master.empty() ? "" : std::to_string(master.front().numel()));
  }
  if (model.size() != master.size()) {
    raise<ConfigError>(where, "got ", model.size(), " parameters and ", master.size(),
                       " masters; expected one for each");
  }
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (model[i].sizes() == master[i].sizes()) continue;
    raise<ConfigError>(where, "parameter ", i, " has shape ", model[i].sizes(), ", its master ",
                       master[i].sizes());
  }
}

void give_gradient(const at::Tensor& master, const at::Tensor& gradient) {
  at::Tensor& own = master.mutable_grad();
  if (!gradient.defined()) {
    own.reset();
  } else if (own.defined() && own.layout() == gradient.layout()) {
    own.copy_(gradient);
  } else {
    own = gradient.detach().to(master.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  }
}

void give_flat_gradient(const at::Tensor& master, const std::vector<at::Tensor>& model) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& each : model) {
    const at::Tensor& grad = each.grad();
    // Elements in the parameter's own order, whatever layout autograd chose for the gradient.
    at::Tensor place = at::zeros_like(each.detach());
    if (grad.defined()) place.copy_(grad.is_sparse() ? grad.to_dense() : grad);
    gradients.push_back(std::move(place));
  }
  const at::Tensor flat = flatten(gradients);
  if (master.grad().defined()) {
    master.mutable_grad().copy_(flat);
  } else {
    master.mutable_grad() = flat.to(master.scalar_type());
  }
}

}  // namespace

std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>> prep_param_lists(
    torch::nn::Module& module, bool flat_master) {
  if (flat_master) check_one_type(module);
  std::vector<at::Tensor> model;
  for (const at::Tensor& each : module.parameters()) {
    if (each.requires_grad()) model.push_back(each);
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> master;
  if (flat_master) {
    std::vector<at::Tensor> values;
    values.reserve(model.size());
    for (const at::Tensor& each : model) values.push_back(each.detach());
    at::Tensor flat = flatten(values).to(at::kFloat).set_requires_grad(true);
    flat.mutable_grad() = at::zeros_like(flat);
    return {model, {flat}};
  }
  master.reserve(model.size());
  for (const at::Tensor& each : model) {
    master.push_back(each.detach()
                         .to(at::kFloat, /*non_blocking=*/false, /*copy=*/true)
                         .set_requires_grad(true));
  }
  return {std::move(model), std::move(master)};
}

void model_grads_to_master_grads(const std::vector<at::Tensor>& model,
                                 const std::vector<at::Tensor>& master, bool flat_master) {
  check_lists("model_grads_to_master_grads", model, master, flat_master);
  const at::NoGradGuard no_grad;
  if (flat_master) {
    give_flat_gradient(master.front(), model);
    return;
  }
  for (std::size_t i = 0; i < model.size(); ++i) give_gradient(master[i], model[i].grad());
}

void master_params_to_model_params(const std::vector<at::Tensor>& model,
                                   const std::vector<at::Tensor>& master, bool flat_master) {
  check_lists("master_params_to_model_params", model, master, flat_master);
  if (model.empty()) return;
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(model, flat_master ? unflatten(master.front().detach(), model) : master);
}

double to_python_float(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0)
    raise<ConfigError>("to_python_float", "the tensor has no element");
  return tensor.detach().flatten()[0].item<double>();
}

}  // namespace mezzo::fp16_utils
