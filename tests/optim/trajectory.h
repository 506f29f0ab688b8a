// Parameters and gradients that two optimizers share, so that their paths can be compared.
#pragma once

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

namespace mezzo::optim::testing_support {

/// Leaves of several sizes and layouts.
inline std::vector<at::Tensor> make_parameters(at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(5);
  std::vector<at::Tensor> params{
      torch::randn({17, 33}),
      torch::randn({5}),
      torch::randn({1}),
      torch::randn({0, 3}),
      torch::randn({8, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast),
      torch::randn({20000}),
      torch::randn({})};
  for (at::Tensor& param : params) {
    param = param.to(dtype).detach().requires_grad_(true);
  }
  return params;
}

/// The gradients of one step: the same for every caller.
inline void set_gradients(const std::vector<at::Tensor>& params, int step) {
  torch::manual_seed(1000 + static_cast<std::uint64_t>(step));
  for (const at::Tensor& param : params) {
    const auto wide = param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor grad = torch::empty(param.sizes(), at::kFloat).normal_().to(wide);
    grad = (grad * 0.1 + param.detach().to(wide) * 0.05).to(param.scalar_type());
    param.mutable_grad() = torch::empty_like(param.detach()).copy_(grad);
  }
}

inline std::vector<at::Tensor> values(const std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& param : params) result.push_back(param.detach().clone());
  return result;
}

inline bool identical(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!torch::equal(a[i].detach(), b[i].detach())) return false;
  }
  return a.size() == b.size();
}

/// Largest difference, relative to the parameters' size.
inline double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].numel() == 0) continue;
    const at::Tensor x = a[i].detach().to(at::kDouble);
    const at::Tensor y = b[i].detach().to(at::kDouble);
    largest = std::max(largest, ((x - y).abs() / (1 + y.abs())).max().item<double>());
  }
  return largest;
}

/// 100 steps of both on the same gradients, of which each parameter's own value is a part.
inline void expect_same_path(torch::optim::Optimizer& ours,
                             const std::vector<at::Tensor>& our_params,
                             torch::optim::Optimizer& theirs,
                             const std::vector<at::Tensor>& their_params, double tolerance) {
  for (int step = 0; step < 100; ++step) {
    set_gradients(our_params, step);
    set_gradients(their_params, step);
    ours.step();
    theirs.step();
  }
  EXPECT_LT(distance(our_params, their_params), tolerance);
}

}  // namespace mezzo::optim::testing_support
