// lint() finds what will go wrong before the first step.
#include "mezzo/insight_lint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "mezzo/amp.h"

namespace a_program {

struct Doubling : torch::autograd::Function<Doubling> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 2};
  }
};

}  // namespace a_program

namespace mezzo::insight {
namespace {

/// Everything that lint() knows, once.
struct FaultyImpl : torch::nn::Module {
  FaultyImpl() {
    first = register_module("first", torch::nn::Linear(16, 16));
    norm =
        register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16}).eps(1e-12)));
    frozen = register_module("frozen", torch::nn::BatchNorm1d(16));
    odd = register_module("odd", torch::nn::Linear(16, 10));
    table = register_buffer("table", torch::ones({16}));
    extra = register_parameter("extra", torch::ones({16}));
    const torch::NoGradGuard no_grad;
    first->weight[0][0] = 1e6;
    frozen->eval();
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = a_program::Doubling::apply(norm(first(x)) * table + extra);
    return odd(frozen(y.masked_fill(y > 1e3, -1e9)));
  }
  torch::nn::Linear first{nullptr}, odd{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::BatchNorm1d frozen{nullptr};
  at::Tensor table, extra;
};
TORCH_MODULE(Faulty);

std::vector<at::Tensor> without_extra(const Faulty& net) {
  std::vector<at::Tensor> parameters;
  for (const auto& item : net->named_parameters()) {
    if (item.key() != "extra") parameters.push_back(item.value());
  }
  return parameters;
}

std::vector<std::string> places(const std::vector<Finding>& findings) {
  std::vector<std::string> all;
  for (const Finding& each : findings) {
    EXPECT_FALSE(each.evidence.empty()) << each.kind;
    EXPECT_FALSE(each.advice.empty()) << each.kind;
    all.push_back(each.severity + " " + each.kind + " " + each.where);
  }
  return all;
}

const std::vector<std::string> kAll{
    "error range first.weight",      "warning mask masked_fill",    "warning unowned extra",
    "warning optimizer_eps Adam",    "warning epsilon norm",        "warning buffer table",
    "info custom_function Doubling", "info batch_norm_eval frozen", "info sizes odd.weight"};

TEST(Lint, FindsEachFaultOnceInABareNetwork) {
  Faulty net;
  torch::optim::Adam adam(without_extra(net));
  EXPECT_THAT(places(lint(net, adam, {torch::ones({4, 16})})), testing::ElementsAreArray(kAll));
}

TEST(Lint, FindsTheSameInAnInitializedModelAndLeavesItAlone) {
  torch::manual_seed(1);
  Faulty net;
  torch::optim::Adam adam(without_extra(net));
  auto [model, optimizer] = amp::initialize(net, adam, {.opt_level = "O1", .verbosity = 0});
  const auto before = amp::model_state_dict(model);
  torch::manual_seed(2);
  EXPECT_THAT(places(lint(model, optimizer, {torch::ones({4, 16})})),
              testing::ElementsAreArray(kAll));
  const at::Tensor drawn = torch::rand({2});
  torch::manual_seed(2);
  EXPECT_TRUE(drawn.equal(torch::rand({2}))) << "random numbers were used up";
  for (const auto& item : amp::model_state_dict(model))
    EXPECT_TRUE(item.value().equal(before[item.key()])) << item.key();
}

TEST(Lint, LowNetworksOwnTheirWeightsThroughMasters) {
  torch::nn::Linear net(8, 8);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O2", .verbosity = 0});
  EXPECT_THAT(places(lint(model, optimizer)), testing::IsEmpty());
  EXPECT_THAT(places(lint(model, optimizer.inner())), testing::IsEmpty());
}

TEST(Lint, ASoundNetworkHasNoFindings) {
  torch::nn::Sequential net(torch::nn::Linear(16, 16), torch::nn::BatchNorm1d(16),
                            torch::nn::Linear(16, 8));
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_THAT(places(lint(net, sgd, {torch::ones({4, 16})})), testing::IsEmpty());
}

}  // namespace
}  // namespace mezzo::insight
