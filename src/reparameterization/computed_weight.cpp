#include "reparameterization/computed_weight.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace mezzo::reparameterization {
namespace {

std::atomic<std::int64_t> alive{0};

/// LibTorch registers parameters but does not give them up.
struct ParameterAccess : torch::nn::Module {
  static torch::OrderedDict<std::string, at::Tensor>& of(torch::nn::Module& module) {
    return module.*(&ParameterAccess::parameters_);
  }
};

// Whoever holds the tensor sees the new value: a member, a list of a recurrent layer.
void become(const at::Tensor& weight, const at::Tensor& value) {
  torch::autograd::impl::set_gradient_edge(weight, {});
  weight.set_data(value.detach());
  if (value.requires_grad() && at::GradMode::is_enabled())
    torch::autograd::impl::set_gradient_edge(weight, torch::autograd::impl::gradient_edge(value));
}

}  // namespace

ComputedWeight::ComputedWeight(torch::nn::Module& owner, std::string name, std::string path,
                               std::int64_t dim, std::unique_ptr<Reparameterization> rule)
    : torch::nn::Module("ComputedWeight"),
      owner_(owner),
      name_(std::move(name)),
      path_(std::move(path)),
      dim_(dim),
      rule_(std::move(rule)) {
  auto& parameters = ParameterAccess::of(owner_);
  weight_ = parameters[name_];
  Reparameterization::Parameters made;
  {
    const at::NoGradGuard no_grad;
    made = rule_->reparameterize(weight_.detach(), dim_);
  }
  const bool trained = weight_.requires_grad();
  parameters.erase(name_);
  for (const auto& item : made) {
    const at::Tensor own = item.value().detach().clone();
    parameters_of_rule_.insert(item.key(),
                               owner_.register_parameter(name_ + item.key(), own, trained));
  }
  weight_.mutable_grad().reset();
  weight_.requires_grad_(false);
  compute();
  ++alive;
}

ComputedWeight::~ComputedWeight() {
  --alive;
}

bool ComputedWeight::any() noexcept {
  return alive.load(std::memory_order_relaxed) > 0;
}

std::string ComputedWeight::key() const {
  std::string key = "computed_" + path_;
  std::ranges::replace(key, '.', '_');
  return key;
}

void ComputedWeight::compute() {
  const at::Tensor value = rule_->compute_weight(parameters_of_rule_, dim_);
  become(weight_, value.to(parameters_of_rule_.back().value().scalar_type()));
}

void ComputedWeight::restore() {
  {
    const at::NoGradGuard no_grad;
    compute();
  }
  auto& parameters = ParameterAccess::of(owner_);
  bool trained = false;
  for (const auto& item : parameters_of_rule_) {
    trained = trained || item.value().requires_grad();
    parameters.erase(name_ + item.key());
  }
  owner_.register_parameter(name_, weight_, trained);
}

std::vector<std::shared_ptr<ComputedWeight>> computed_weights(const torch::nn::Module& module) {
  std::vector<std::shared_ptr<ComputedWeight>> all;
  for (const auto& each : module.modules(/*include_self=*/false)) {
    if (auto weight = std::dynamic_pointer_cast<ComputedWeight>(each)) all.push_back(weight);
  }
  return all;
}

}  // namespace mezzo::reparameterization
