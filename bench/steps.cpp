#include "steps.h"

#include <torch/torch.h>

#include "bridge/split_masters.h"
#include "mezzo/optim.h"
#include "optim/step_context.h"
#include "scaling/finite_check.h"

namespace mezzo::bench {
namespace {

constexpr double kRate = 1e-3;
constexpr double kMomentum = 0.9;
constexpr double kDecay = 0.01;

std::vector<at::Tensor> make_parameters(const ParameterList& list) {
  std::vector<at::Tensor> params;
  for (const auto& sizes : list.sizes) {
    params.push_back(torch::randn(sizes).mul_(0.02).requires_grad_());
  }
  return params;
}

std::vector<at::Tensor> detached(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  result.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.detach());
  return result;
}

std::vector<at::Tensor> empty_like(const std::vector<at::Tensor>& tensors, at::ScalarType type) {
  std::vector<at::Tensor> result;
  result.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    result.push_back(torch::zeros_like(tensor.detach(), type));
  }
  return result;
}

// Lends gradients and copies as a model under mixed precision does, in the order of the parameters.
class Lender final : public optim::StepContext {
 public:
  std::vector<at::Tensor> grads, copies;
  std::vector<bridge::SplitRest> rests;  // none: masters are whole
  optim::LowCopy low_copy(const at::Tensor&) override {
    const std::size_t i = next_++;
    return {&grads[i], &copies[i], std::nullopt, rests.empty() ? nullptr : &rests[i]};
  }
  void stepped(bool) override { next_ = 0; }

 private:
  std::size_t next_ = 0;
};

struct Fused {
  std::vector<at::Tensor> params;
  std::unique_ptr<optim::FusedOptimizer> optimizer;
  std::shared_ptr<Lender> lender = std::make_shared<Lender>();
  at::Tensor found_inf = torch::zeros({1});
  at::Tensor inv_scale = torch::ones({1});

  explicit Fused(const StepCase& c) : params(make_parameters(c.list)) {
    if (c.rule == Rule::kAdamW) {
      optimizer = std::make_unique<optim::FusedAdam>(
          params, optim::FusedAdamOptions(kRate).weight_decay(kDecay));
    } else {
      optimizer = std::make_unique<optim::FusedSGD>(
          params, optim::FusedSGDOptions(kRate).momentum(kMomentum).weight_decay(kDecay));
    }
    lender->grads = make_gradients(c);
    lender->copies = empty_like(params, c.copy);
    for (std::size_t i = 0; c.splits && i < params.size(); ++i) {
      lender->rests.push_back(bridge::split_master(params[i].detach(), lender->copies[i]));
      params[i].set_data(bridge::without_memory(params[i], "a split master"));
    }
    optim::set_step_context(*optimizer, lender);
  }
};

// LibTorch's operators on lists.
struct Composite {
  StepCase c;
  bool check_low;
  std::vector<at::Tensor> params, grads, low_grads, first, second, steps, copies;
  at::Tensor found_inf = torch::zeros({1});
  at::Tensor inv_scale = torch::ones({1});
  at::Tensor count = torch::zeros({1});

  Composite(const StepCase& given, bool low)
      : c(given), check_low(low && given.grad != at::kFloat) {
    params = detached(make_parameters(c.list));
    grads = make_gradients(c);
    if (c.grad != at::kFloat) {
      low_grads = grads;
      grads = empty_like(params, at::kFloat);
    }
    first = empty_like(params, at::kFloat);
    if (c.rule == Rule::kAdamW) second = empty_like(params, at::kFloat);
    // One counter that all share, so that counting costs one operator.
    steps.assign(params.size(), count);
    copies = empty_like(params, c.copy);
  }

  void step() {
    if (check_low) at::_amp_foreach_non_finite_check_and_unscale_(low_grads, found_inf, inv_scale);
    if (!low_grads.empty()) at::_foreach_copy_(grads, low_grads);
    if (!check_low) at::_amp_foreach_non_finite_check_and_unscale_(grads, found_inf, inv_scale);
    if (c.rule == Rule::kAdamW) {
      count.add_(1);
      at::_fused_adamw_(params, grads, first, second, {}, steps, kRate, 0.9, 0.999, kDecay, 1e-8,
                        /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{}, found_inf);
    } else {
      at::_fused_sgd_(params, grads, first, kDecay, kMomentum, kRate, /*dampening=*/0,
                      /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false,
                      /*grad_scale=*/{}, found_inf);
    }
    at::_foreach_copy_(copies, params);
  }
};

// torch::optim's classes.
struct Classic {
  std::vector<at::Tensor> params, values, grads, low_grads, copies;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  at::Tensor found_inf = torch::zeros({1});
  at::Tensor inv_scale = torch::ones({1});

  explicit Classic(const StepCase& c) : params(make_parameters(c.list)), values(detached(params)) {
    grads = make_gradients(c);
    if (c.grad != at::kFloat) {
      low_grads = grads;
      grads = empty_like(params, at::kFloat);
    }
    for (std::size_t i = 0; i < params.size(); ++i) params[i].mutable_grad() = grads[i];
    copies = empty_like(params, c.copy);
    if (c.rule == Rule::kAdamW) {
      optimizer = std::make_unique<torch::optim::AdamW>(
          params, torch::optim::AdamWOptions(kRate).weight_decay(kDecay));
    } else {
      optimizer = std::make_unique<torch::optim::SGD>(
          params, torch::optim::SGDOptions(kRate).momentum(kMomentum).weight_decay(kDecay));
    }
  }

  void step() {
    if (!low_grads.empty()) at::_foreach_copy_(grads, low_grads);
    at::_amp_foreach_non_finite_check_and_unscale_(grads, found_inf, inv_scale);
    if (found_inf.item<float>() == 0) optimizer->step();
    at::_foreach_copy_(copies, values);
  }
};

template <typename T>
Contestant contestant(std::string name, std::shared_ptr<T> owned) {
  return {std::move(name), [owned] {
            const at::NoGradGuard no_grad;
            owned->step();
          }};
}

}  // namespace

std::vector<at::Tensor> make_gradients(const StepCase& c) {
  std::vector<at::Tensor> grads;
  for (const auto& sizes : c.list.sizes) {
    grads.push_back(torch::randn(sizes).mul_(1e-3).to(c.grad));
  }
  return grads;
}

Contestant ours(const StepCase& c) {
  const auto fused = std::make_shared<Fused>(c);
  return {"FusedOptimizer",
          [fused] { optim::step_checked(*fused->optimizer, fused->found_inf, fused->inv_scale); }};
}

Contestant ours_unscaled_before(const StepCase& c) {
  const auto fused = std::make_shared<Fused>(c);
  return {"FusedOptimizer, gradients unscaled before it", [fused] {
            scaling::unscale_and_check(fused->lender->grads, fused->inv_scale, fused->found_inf);
            fused->optimizer->step_unless(fused->found_inf, fused->inv_scale);
          }};
}

Contestant our_update(const StepCase& c) {
  const auto fused = std::make_shared<Fused>(c);
  return {"FusedOptimizer",
          [fused] { fused->optimizer->step_unless(fused->found_inf, fused->inv_scale); }};
}

Contestant composite(const StepCase& c, bool check_low) {
  return contestant(std::string("foreach check") + (check_low ? " (16 bits), " : ", ") +
                        (c.rule == Rule::kAdamW ? "_fused_adamw_" : "_fused_sgd_") +
                        ", foreach copies",
                    std::make_shared<Composite>(c, check_low));
}

Contestant torch_optim(const StepCase& c) {
  return contestant(c.rule == Rule::kAdamW ? "torch::optim::AdamW with foreach check and copy"
                                           : "torch::optim::SGD with foreach check and copy",
                    std::make_shared<Classic>(c));
}

double step_bytes(const StepCase& c) {
  const double grad = c.grad == at::kFloat ? 4 : 2;
  const double weight_and_state = c.rule == Rule::kAdamW ? 24 : 16;
  // A float master and its copy, or two halves of a master.
  return 2 * grad + weight_and_state + (c.splits ? 0 : 2);
}

}  // namespace mezzo::bench
