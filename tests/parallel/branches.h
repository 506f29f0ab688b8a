// A network that does not use all parameters in each forward, and comparisons of its gradients.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "mezzo/parallel.h"

namespace mezzo::parallel::testing_ranks {

// Two branches, of which a forward may take one, and a weight that is used twice.
struct BranchesImpl : torch::nn::Module {
  torch::nn::Linear first{nullptr}, left{nullptr}, right{nullptr}, last{nullptr};
  BranchesImpl() {
    first = register_module("first", torch::nn::Linear(6, 8));
    left = register_module("left", torch::nn::Linear(8, 8));
    right = register_module("right", torch::nn::Linear(8, 8));
    last = register_module("last", torch::nn::Linear(8, 3));
    register_buffer("seen", torch::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x, bool go_left = true, bool go_right = true) {
    named_buffers()["seen"].add_(x.size(0));
    at::Tensor h = torch::tanh(first(x));
    if (go_left) h = h + left(torch::relu(left(h)));
    if (go_right) h = h + right(h);
    return last(h);
  }
};
TORCH_MODULE(Branches);

inline Branches net_of(unsigned seed, at::ScalarType type = at::kFloat) {
  torch::manual_seed(seed);
  Branches net;
  net->to(type);
  return net;
}

inline at::Tensor batch_of(unsigned seed, int rows, at::ScalarType type = at::kFloat) {
  torch::manual_seed(seed);
  return torch::randn({rows, 6}, at::kDouble).to(type);
}

inline at::Tensor loss_of(const at::Tensor& y) {
  return y.to(at::kFloat).square().mean();
}

using Gradients = std::vector<at::Tensor>;

inline Gradients gradients_of(const Branches& net) {
  Gradients all;
  for (const auto& p : net->parameters())
    all.push_back(p.grad().defined() ? p.grad().clone() : at::Tensor());
  return all;
}

inline void expect_equal(const Gradients& a, const Gradients& b, const std::string& what,
                         double tolerance = 2e-6) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << what << ", gradient " << i;
    if (!a[i].defined()) continue;
    const double error = (a[i].to(at::kDouble) - b[i].to(at::kDouble)).abs().max().item<double>();
    ASSERT_LE(error, tolerance * (1 + b[i].abs().max().item<double>()))
        << what << ", gradient " << i;
  }
}

inline void expect_same_on_all_ranks(const std::vector<at::Tensor>& mine, const std::string& what) {
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (!mine[i].defined()) continue;
    const at::Tensor all = world().all_gather(mine[i].detach());
    for (int r = 1; r < world_size(); ++r)
      ASSERT_TRUE(torch::equal(all[r], all[0])) << what << ", tensor " << i;
  }
}

// Each rank's rows of a batch for everybody.
inline at::Tensor own_rows(const at::Tensor& all) {
  const std::int64_t each = all.size(0) / world_size();
  return all.narrow(0, rank() * each, each);
}

}  // namespace mezzo::parallel::testing_ranks
