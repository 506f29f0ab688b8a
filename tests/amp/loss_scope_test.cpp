// What a scope of scale_loss does where programs are not as orderly as the three lines.
#include <gmock/gmock.h>

#include <limits>

#include "amp/training.h"
#include "mezzo/error.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kInf = std::numeric_limits<double>::infinity();

at::Tensor x_row() {
  return torch::tensor({{0.5F, -1.0F, 2.0F}});
}

at::Tensor gradient_of(const Optimizer& optimizer) {
  return master_params(optimizer)[0].grad().to(at::kFloat);
}

Options dynamic(const std::string& level, int num_losses = 1) {
  Options options = at_level(level);
  options.loss_scale = "dynamic";
  options.num_losses = num_losses;
  return options;
}

TEST(LossScope, ClearingGradientsInsideItClearsThoseFromBefore) {
  for (const std::string& level : kLevels) {
    for (const bool by_model : {false, true}) {
      for (const bool to_none : {false, true}) {
        Line net;
        torch::optim::SGD sgd(net->parameters(), 0.0);
        auto [model, optimizer] = initialize(net, sgd, dynamic(level));
        for (int step = 0; step < 3; ++step) {
          const at::Tensor loss = model(x_row()).sum();
          {
            ScaledLoss scaled = scale_loss(loss, optimizer);
            by_model ? model->zero_grad(to_none) : optimizer.zero_grad(to_none);
            scaled.backward();
          }
          optimizer.step();
        }
        EXPECT_TRUE(torch::allclose(gradient_of(optimizer), x_row())) << level;
      }
    }
  }
}

TEST(LossScope, ABackwardPassAfterItsEndIsAnError) {
  for (const std::string& level : kLevels) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, dynamic(level));
    ScaledLoss scaled = scale_loss(model(x_row()).sum(), optimizer);
    scaled.close();
    EXPECT_THAT([&] { scaled.backward(); }, ThrowsMessage<Error>(HasSubstr("was closed"))) << level;
    EXPECT_FALSE(net->line->weight.grad().defined());
  }
}

TEST(LossScope, AGroupAddedInsideItKeepsTheGradientsFromBefore) {
  for (const std::string& level : kLevels) {
    TinyNet net;
    torch::optim::SGD sgd(net->first->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, dynamic(level));
    const auto backward = [&model = model, &optimizer = optimizer] {
      return scale_loss(loss_of(model), optimizer);
    };
    backward().backward();
    const at::Tensor once = gradient_of(optimizer).clone();
    {
      ScaledLoss scaled = backward();
      scaled.backward();
      optimizer.add_param_group(torch::optim::OptimizerParamGroup(net->second->parameters()));
    }
    EXPECT_TRUE(torch::allclose(gradient_of(optimizer), once * 2, 1e-2, 1e-3)) << level;
  }
}

TEST(LossScope, AnOverflowIsLaidToTheLossThatLeftItScaled) {
  for (const std::string& level : kLevels) {
    for (const bool overflows : {false, true}) {
      Line first;
      Line second;
      torch::optim::SGD first_sgd(first->parameters(), 0.1);
      torch::optim::SGD second_sgd(second->parameters(), 0.1);
      Options options = dynamic(level, 2);
      options.growth_interval = 1;
      auto [models, optimizers] =
          initialize(std::tie(first, second), std::tie(first_sgd, second_sgd), options);
      auto& [a, b] = models;
      auto& [opt_a, opt_b] = optimizers;
      const double factor = overflows ? kInf : 1;
      scale_loss(a(x_row()).sum() * factor, opt_a, {.loss_id = 0, .delay_unscale = true})
          .backward();
      scale_loss(a(x_row()).sum() + b(x_row()).sum(), optimizers, {.loss_id = 1}).backward();
      if (!overflows) {
        EXPECT_TRUE(torch::allclose(gradient_of(opt_a), 2 * x_row())) << level;
      }
      EXPECT_TRUE(torch::allclose(gradient_of(opt_b), x_row())) << level;
      EXPECT_EQ(opt_a.loss_scale(0), overflows ? 512 : 2048) << level;
      EXPECT_EQ(opt_a.loss_scale(1), 2048) << level;
      EXPECT_EQ(opt_a.step().skipped(), overflows) << level;
      EXPECT_TRUE(opt_b.step().applied()) << level;
    }
  }
}

TEST(LossScope, WhatTwoOptimizersOwnAndAnotherLossLeftScaledAddsUp) {
  for (const std::string& level : kLevels) {
    Line net;
    torch::optim::SGD first_sgd(net->parameters(), 0.1);
    torch::optim::SGD second_sgd(net->parameters(), 0.1);
    auto [model, optimizers] = initialize(net, std::tie(first_sgd, second_sgd), dynamic(level, 2));
    scale_loss(model(x_row()).sum(), optimizers, {.loss_id = 0, .delay_unscale = true}).backward();
    scale_loss(model(x_row()).sum(), optimizers, {.loss_id = 1}).backward();
    EXPECT_TRUE(torch::allclose(gradient_of(std::get<0>(optimizers)), 2 * x_row())) << level;
  }
}

TEST(LossScope, DeferredLossesMoveEachTheirOwnScale) {
  for (const std::string& level : kLevels) {
    for (const bool fused : {false, true}) {
      for (const int bad : {-1, 0, 1}) {
        Line net;
        std::unique_ptr<torch::optim::Optimizer> inner;
        if (fused) {
          inner = std::make_unique<optim::FusedSGD>(net->parameters(), optim::FusedSGDOptions(0.5));
        } else {
          inner = std::make_unique<torch::optim::SGD>(net->parameters(), 0.5);
        }
        Options options = dynamic(level, 2);
        options.growth_interval = 1;
        options.defer_unscale = true;
        auto [model, optimizer] = initialize(net, *inner, options);
        const at::Tensor before = master_params(optimizer)[0].detach().to(at::kFloat, false, true);
        for (const int loss : {0, 1}) {
          const double factor = loss == bad ? kInf : 1;
          scale_loss(model(x_row()).sum() * factor, optimizer, {.loss_id = loss}).backward();
        }
        EXPECT_EQ(optimizer.step().skipped(), bad >= 0) << level << fused << bad;
        EXPECT_EQ(optimizer.loss_scale(0), bad == 0 ? 512 : 2048) << level << fused << bad;
        EXPECT_EQ(optimizer.loss_scale(1), bad == 1 ? 512 : 2048) << level << fused << bad;
        const at::Tensor expected = bad >= 0 ? before : before - 0.5 * 2 * x_row();
        EXPECT_TRUE(torch::equal(master_params(optimizer)[0].to(at::kFloat), expected))
            << level << fused << bad;
      }
    }
  }
}

TEST(LossScope, OptimizersOfWhichOneIsDisabledHaveNoCommonScale) {
  Line first;
  Line second;
  torch::optim::SGD first_sgd(first->parameters(), 0.1);
  torch::optim::SGD second_sgd(second->parameters(), 0.1);
  auto [a, opt_a] = initialize(first, first_sgd, at_level("O2"));
  Options disabled = at_level("O2");
  disabled.enabled = false;
  auto [b, opt_b] = initialize(second, second_sgd, disabled);
  const at::Tensor loss = a(x_row()).sum() + b(x_row()).sum();
  const auto open = [&loss, &opt_a = opt_a, &opt_b = opt_b] {
    scale_loss(loss, {opt_a, opt_b}).backward();
  };
  EXPECT_THAT(open, ThrowsMessage<ConfigError>(HasSubstr("enabled = false")));
  EXPECT_EQ(second->line->weight.scalar_type(), at::kFloat);
}

TEST(LossScope, AnExitThatFailsEndsIt) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, dynamic("O1"));
  {
    const ScaledLoss scaled = scale_loss(model(x_row()).sum(), optimizer);
    // A layout that cannot be unscaled.
    net->line->weight.mutable_grad() = torch::ones({1, 3}).to_sparse_csr();
  }
  EXPECT_ANY_THROW(optimizer.step());
  EXPECT_FALSE(net->line->weight.grad().defined());
  optimizer.zero_grad();
  scale_loss(model(x_row()).sum(), optimizer).backward();
  EXPECT_TRUE(optimizer.step().applied());
}

}  // namespace
}  // namespace mezzo::amp
