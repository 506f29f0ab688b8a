// modules_of() and operators_of() give names that keep_float and policies take.
#include "mezzo/insight_candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "insight/gallery.h"
#include "insight/noisy_training.h"

namespace mezzo::insight {
namespace {

TEST(Candidates, ModulesAreThoseThatOwnTensors) {
  Noisy net;
  EXPECT_THAT(modules_of(net), testing::ElementsAre("first", "norm", "second"));
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O2", .verbosity = 0});
  EXPECT_THAT(modules_of(model), testing::ElementsAre("first", "norm", "second"));
  EXPECT_THROW(modules_of(Noisy(nullptr)), ConfigError);
}

TEST(Candidates, TensorsOfTheRootCountByThemselves) {
  struct RootedImpl : torch::nn::Module {
    RootedImpl() {
      register_parameter("scale", torch::ones({2}));
      register_buffer("table", torch::ones({2}));
      register_buffer("count", torch::zeros({1}, at::kLong));
      register_module("inner", torch::nn::Sequential(torch::nn::Linear(2, 2)));
    }
  };
  EXPECT_THAT(modules_of(std::make_shared<RootedImpl>()),
              testing::ElementsAre("scale", "inner.0", "table"));
}

TEST(Candidates, OperatorsAreThoseThatAPolicyCouldKeepInFloat) {
  Sandwich net([](const at::Tensor& x) { return torch::relu(x).mul_(2).softmax(1).view({3, 8}); });
  const at::Tensor x = torch::ones({3, 4});
  const std::vector<std::string> expected{"addmm", "relu", "mul"};
  EXPECT_EQ(operators_of(net, [&] { return net(x).sum(); }), expected);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O1", .verbosity = 0});
  EXPECT_EQ(operators_of(model, [&, &model = model] { return model(x).sum(); }), expected);
  for (const std::string& name : expected)
    EXPECT_EQ(Policy::defaults().with(name, CastClass::kFloat).classify(name), CastClass::kFloat);
}

TEST(Candidates, OfTwoLinearLayersTheSearchFindsThoseThatOverflow) {
  const auto spoiled = [] {
    Sandwich net([](const at::Tensor& x) { return x * 1e-4; });
    const torch::NoGradGuard no_grad;
    net->stem->weight.fill_(1);
    return net;
  };
  const at::Tensor x = torch::full({3, 4}, 30000.0);  // stem: 120000
  const auto is_good = [&](const std::vector<std::string>& kept) {
    auto model =
        amp::initialize(spoiled(), {.opt_level = "O3", .verbosity = 0, .keep_float = kept});
    return torch::isfinite(model(x)).all().item<bool>();
  };
  const FloatSet set = smallest_float_set(modules_of(spoiled()), is_good);
  EXPECT_TRUE(set.complete);
  EXPECT_THAT(set.names, testing::ElementsAre("stem"));
}

}  // namespace
}  // namespace mezzo::insight
