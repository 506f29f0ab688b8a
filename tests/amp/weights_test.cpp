#include <gtest/gtest.h>

#include <sstream>

#include "amp/training.h"
#include "mezzo/error.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

/// Values that half cannot hold.
at::Tensor exact_values() {
  return torch::tensor({{0.1234567F, -0.7654321F, 0.3333333F}});
}

void train_once(const Model<Line>& model, Optimizer& optimizer) {
  optimizer.zero_grad();
  scale_loss(model(row()).sum(), optimizer).backward();
  ASSERT_TRUE(optimizer.step().applied());
}

TEST(Masters, ExistFromTheStartWithTheExactValues) {
  for (const std::string level : {"O2", "O5"}) {
    Line net;
    {
      const torch::NoGradGuard no_grad;
      net->line->weight.copy_(exact_values());
    }
    torch::optim::Adam adam(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, adam, at_level(level));
    const at::Tensor master = master_params(optimizer)[0];
    EXPECT_TRUE(torch::equal(master, exact_values()));
    EXPECT_TRUE(master.requires_grad());
    EXPECT_TRUE(master.is_leaf());
    EXPECT_TRUE(
        torch::equal(net->line->weight, exact_values().to(net->line->weight.scalar_type())));
  }
}

TEST(Masters, GiveWeightsAndStateBackWhenTheHandlesAreGone) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.125).momentum(0.5));
  const at::Tensor weight = net->line->weight;
  at::Tensor master;
  {
    auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
    train_once(model, optimizer);
    master = master_params(optimizer)[0].detach().clone();
    EXPECT_FALSE(sgd.param_groups()[0].params()[0].is_same(weight));
  }
  EXPECT_EQ(weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(torch::equal(weight, master));
  EXPECT_TRUE(sgd.param_groups()[0].params()[0].is_same(weight));
  ASSERT_EQ(sgd.state().size(), 1U);
  EXPECT_EQ(sgd.state().begin()->first, weight.unsafeGetTensorImpl());
  sgd.zero_grad();
  net(row()).sum().backward();
  sgd.step();
}

TEST(Masters, AreCreatedForAddedGroupsAndUnfrozenParameters) {
  TinyNet net;
  for (at::Tensor& parameter : net->second->parameters()) parameter.requires_grad_(false);
  torch::optim::SGD sgd(net->first->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  EXPECT_EQ(master_params(optimizer).size(), 2U);
  optimizer.add_param_group(torch::optim::OptimizerParamGroup(net->second->parameters()));
  EXPECT_EQ(master_params(optimizer)[2].scalar_type(), at::kHalf) << "frozen: nothing to step";
  for (at::Tensor& parameter : net->second->parameters()) parameter.requires_grad_(true);
  const at::Tensor before = net->second->weight.detach().clone();
  scale_loss(loss_of(model), optimizer).backward();
  EXPECT_TRUE(optimizer.step().applied());
  EXPECT_EQ(master_params(optimizer)[2].scalar_type(), at::kFloat);
  EXPECT_FALSE(torch::equal(net->second->weight, before));
}

// LibTorch 2.15 gives groups of options that are not its own the optimizer's defaults instead.
TEST(Masters, AddedGroupsKeepTheirOptions) {
  TinyNet net;
  optim::FusedAdam adam(net->first->parameters(), optim::FusedAdamOptions(0.125));
  auto [model, optimizer] = initialize(net, adam, at_level("O2"));
  optimizer.add_param_group(torch::optim::OptimizerParamGroup(
      net->second->parameters(),
      std::make_unique<optim::FusedAdamOptions>(optim::FusedAdamOptions(0.5).weight_decay(0.25))));
  const auto& added =
      static_cast<const optim::FusedAdamOptions&>(optimizer.param_groups().back().options());
  EXPECT_EQ(added.lr(), 0.5);
  EXPECT_EQ(added.weight_decay(), 0.25);
}

TEST(Masters, TakeValuesThatAreWrittenIntoTheModule) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  train_once(model, optimizer);
  {
    const torch::NoGradGuard no_grad;
    net->line->weight.fill_(3);
  }
  train_once(model, optimizer);
  EXPECT_TRUE(torch::allclose(master_params(optimizer)[0], 3 - 0.125 * row()));
}

TEST(Masters, TakeTheExactValuesOfAFileLoadedIntoTheBareModule) {
  for (const std::string level : {"O2", "O3", "O5"}) {
    Line trained;
    {
      const torch::NoGradGuard no_grad;
      trained->line->weight.copy_(exact_values());
    }
    std::stringstream file;
    torch::save(trained, file);

    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    torch::load(net, file);
    const at::Tensor output = model(row());
    EXPECT_TRUE(torch::allclose(output, row().matmul(exact_values().t()), 2e-2)) << level;
    EXPECT_TRUE(torch::equal(net->line->weight, exact_values().to(net->line->weight.scalar_type())))
        << level;
    if (level != "O3") {
      EXPECT_TRUE(torch::equal(master_params(optimizer)[0], exact_values())) << level;
    }
  }
}

TEST(Masters, TakeAFileThatWasSavedFromAHalfModule) {
  Line trained;
  trained->to(at::kHalf);
  std::stringstream file;
  torch::save(trained, file);
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  train_once(model, optimizer);
  torch::load(net, file);
  model(row());
  EXPECT_TRUE(torch::equal(master_params(optimizer)[0], trained->line->weight.to(at::kFloat)));
}

TEST(Masters, BytesThatCannotBeUnderstoodAreAnError) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  const at::Tensor other = torch::zeros({100}, at::kHalf);
  {
    const torch::NoGradGuard no_grad;
    net->line->weight.set_(other.storage(), 0, {1, 3}, {3, 1});
  }
  try {
    model(row());
    FAIL() << "a storage of another size must not pass";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'line.weight'"), std::string::npos);
  }
}

TEST(Masters, SurviveAModuleThatIsCastBehindOurBack) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  net->to(at::kFloat);
  train_once(model, optimizer);
  EXPECT_EQ(net->line->weight.scalar_type(), at::kHalf);
}

/// One weight under two names.
struct TiedImpl : torch::nn::Module {
  TiedImpl()
      : first(register_module("first",
                              torch::nn::Linear(torch::nn::LinearOptions(3, 3).bias(false)))) {
    again = register_parameter("again", first->weight);
  }
  at::Tensor forward(const at::Tensor& x) { return torch::matmul(first(x), again).sum(-1, true); }
  torch::nn::Linear first;
  at::Tensor again;
};
TORCH_MODULE(Tied);

TEST(Masters, TiedWeightsHaveOne) {
  Tied net;
  torch::optim::SGD sgd({net->first->weight}, 0.125);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  EXPECT_TRUE(net->again.is_same(net->first->weight));
  EXPECT_EQ(net->again.scalar_type(), at::kHalf);
  const at::Tensor before = net->again.detach().clone();
  scale_loss(model(row()).sum(), optimizer).backward();
  EXPECT_TRUE(optimizer.step().applied());
  EXPECT_FALSE(torch::equal(net->again, before));
}

TEST(Masters, ClippingThemClipsTheStep) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 1.0);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  const at::Tensor before = master_params(optimizer)[0].detach().clone();
  scale_loss(model(row() * 10).sum(), optimizer).backward();
  torch::nn::utils::clip_grad_norm_(master_params(optimizer), 1.0);
  optimizer.step();
  EXPECT_NEAR((master_params(optimizer)[0] - before).norm().item<double>(), 1.0, 1e-4);
}

TEST(Masters, AnyOptimizerSteps) {
  for (const std::string& level : kLevels) {
    for (int kind = 0; kind < 5; ++kind) {
      torch::manual_seed(2);
      TinyNet net;
      std::unique_ptr<torch::optim::Optimizer> inner;
      if (kind == 0) inner = std::make_unique<torch::optim::SGD>(net->parameters(), 0.1);
      if (kind == 1)
        inner = std::make_unique<torch::optim::Adam>(net->parameters(),
                                                     torch::optim::AdamOptions(0.01).eps(1e-4));
      if (kind == 2)
        inner = std::make_unique<torch::optim::AdamW>(net->parameters(),
                                                      torch::optim::AdamWOptions(0.01).eps(1e-4));
      if (kind == 3)
        inner = std::make_unique<torch::optim::Adagrad>(net->parameters(),
                                                        torch::optim::AdagradOptions(0.01));
      if (kind == 4)
        inner = std::make_unique<torch::optim::RMSprop>(
            net->parameters(), torch::optim::RMSpropOptions(0.01).eps(1e-4));
      auto [model, optimizer] = initialize(net, *inner, at_level(level));
      const double first = loss_of(model).item<double>();
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        scale_loss(loss_of(model), optimizer).backward();
        optimizer.step();
      }
      const double last = loss_of(model).item<double>();
      EXPECT_LT(last, first) << level << " optimizer " << kind;
    }
  }
}

}  // namespace
}  // namespace mezzo::amp
