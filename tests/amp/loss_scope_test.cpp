// Scopes of scale_loss in programs that are not as orderly as the three lines.
#include <gmock/gmock.h>

#include <limits>

#include "amp/training.h"
#include "mezzo/error.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

at::Tensor x_row() {
  return torch::tensor({{0.5F, -1.0F, 2.0F}});
}

at::Tensor scope_gradient(const Optimizer& optimizer) {
  return master_params(optimizer)[0].grad().to(at::kFloat);
}

Options dynamic_losses(const std::string& level, int num_losses = 1) {
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
        auto [model, optimizer] = initialize(net, sgd, dynamic_losses(level));
        for (int step = 0; step < 3; ++step) {
          const at::Tensor loss = model(x_row()).sum();
          {
            ScaledLoss scaled = scale_loss(loss, optimizer);
            by_model ? model->zero_grad(to_none) : optimizer.zero_grad(to_none);
            scaled.backward();
          }
          optimizer.step();
        }
        EXPECT_TRUE(torch::allclose(scope_gradient(optimizer), x_row())) << level;
      }
    }
  }
}

TEST(LossScope, ABackwardPassAfterItsEndIsAnError) {
  for (const std::string& level : kLevels) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, dynamic_losses(level));
    ScaledLoss scaled = scale_loss(model(x_row()).sum(), optimizer);
    scaled.close();
    EXPECT_THAT([&] { scaled.backward(); }, ThrowsMessage<Error>(HasSubstr("was closed"))) << level;
    EXPECT_FALSE(net->line->weight.grad().defined());
  }
}

/// A network whose backward pass may break off after some of the gradients have come.
struct FragileImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = first(x);
    if (breaks && y.requires_grad()) {
      y.register_hook([](const at::Tensor& grad) -> at::Tensor {
        throw std::runtime_error("out of memory, say");
        return grad;
      });
    }
    return second(y);
  }
  bool breaks = false;
  torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 3));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(3, 1));
};
TORCH_MODULE(Fragile);

TEST(LossScope, ABackwardPassThatBreaksOffInsideItLeavesEverythingAsBefore) {
  for (const std::string& level : kLevels) {
    Fragile net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, dynamic_losses(level));
    scale_loss(model(x_row()).sum(), optimizer).backward();
    std::vector<at::Tensor> before;
    for (const at::Tensor& master : master_params(optimizer))
      before.push_back(master.grad().clone());
    const StateDict scales = state_dict(optimizer);

    net->breaks = true;
    {
      ScaledLoss scaled = scale_loss(model(x_row()).sum(), optimizer);
      EXPECT_THROW(scaled.backward(), std::runtime_error) << level;
    }
    std::vector<at::Tensor> after;
    for (const at::Tensor& master : master_params(optimizer)) after.push_back(master.grad());
    EXPECT_TRUE(same_values(after, before)) << level;
    EXPECT_EQ(state_dict(optimizer), scales) << level;
    net->breaks = false;
    scale_loss(model(x_row()).sum(), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
}

TEST(LossScope, AGroupAddedInsideItKeepsTheGradientsFromBefore) {
  for (const std::string& level : kLevels) {
    TinyNet net;
    torch::optim::SGD sgd(net->first->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, dynamic_losses(level));
    const auto backward = [&model = model, &optimizer = optimizer] {
      return scale_loss(loss_of(model), optimizer);
    };
    backward().backward();
    const at::Tensor once = scope_gradient(optimizer).clone();
    {
      ScaledLoss scaled = backward();
      scaled.backward();
      optimizer.add_param_group(torch::optim::OptimizerParamGroup(net->second->parameters()));
    }
    EXPECT_TRUE(torch::allclose(scope_gradient(optimizer), once * 2, 1e-2, 1e-3)) << level;
  }
}

TEST(LossScope, AnOverflowIsLaidToTheLossThatLeftItScaled) {
  for (const std::string& level : kLevels) {
    for (const bool overflows : {false, true}) {
      Line first;
      Line second;
      torch::optim::SGD first_sgd(first->parameters(), 0.1);
      torch::optim::SGD second_sgd(second->parameters(), 0.1);
      Options options = dynamic_losses(level, 2);
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
        EXPECT_TRUE(torch::allclose(scope_gradient(opt_a), 2 * x_row())) << level;
      }
      EXPECT_TRUE(torch::allclose(scope_gradient(opt_b), x_row())) << level;
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
    auto [model, optimizers] =
        initialize(net, std::tie(first_sgd, second_sgd), dynamic_losses(level, 2));
    scale_loss(model(x_row()).sum(), optimizers, {.loss_id = 0, .delay_unscale = true}).backward();
    scale_loss(model(x_row()).sum(), optimizers, {.loss_id = 1}).backward();
    EXPECT_TRUE(torch::allclose(scope_gradient(std::get<0>(optimizers)), 2 * x_row())) << level;
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
        Options options = dynamic_losses(level, 2);
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

TEST(LossScope, ASharedParameterLeftScaledByEitherOfItsOptimizersIsUnscaledOnce) {
  for (const std::string& level : kLevels) {
    for (const bool first_leaves_it : {false, true}) {
      for (const bool first_is_listed_first : {false, true}) {
        Line net;
        torch::optim::SGD first_sgd(net->parameters(), 0.1);
        torch::optim::SGD second_sgd(net->parameters(), 0.1);
        auto [model, optimizers] =
            initialize(net, std::tie(first_sgd, second_sgd), dynamic_losses(level));
        auto& [first, second] = optimizers;
        Optimizer& leaves = first_leaves_it ? first : second;
        Optimizer& other = first_leaves_it ? second : first;
        const auto loss = [&model = model] { return model(x_row()).sum(); };
        scale_loss(loss(), leaves, {.delay_unscale = true}).backward();
        EXPECT_THAT([&] { other.step(); }, ThrowsMessage<Error>(HasSubstr("still scaled")))
            << level;
        if (first_is_listed_first) {
          scale_loss(loss(), {first, second}).backward();
        } else {
          scale_loss(loss(), {second, first}).backward();
        }
        EXPECT_TRUE(torch::allclose(scope_gradient(first), 2 * x_row())) << level;
        scale_loss(loss(), {first, second}, {.delay_unscale = true}).backward();
        scale_loss(loss(), leaves, {.delay_unscale = true}).backward();
        scale_loss(loss(), {second, first}).backward();
        EXPECT_TRUE(torch::allclose(scope_gradient(first), 5 * x_row())) << level;
        EXPECT_TRUE(leaves.step().applied()) << level;
      }
    }
  }
}

TEST(LossScope, WhatOneBlockLeftScaledForTwoOptimizersIsJudgedOnce) {
  for (const std::string& level : kLevels) {
    for (const bool overflows : {false, true}) {
      Line first;
      Line second;
      torch::optim::SGD first_sgd(first->parameters(), 0.1);
      torch::optim::SGD second_sgd(second->parameters(), 0.1);
      auto [models, optimizers] = initialize(
          std::tie(first, second), std::tie(first_sgd, second_sgd), dynamic_losses(level, 3));
      auto& [a, b] = models;
      auto& [opt_a, opt_b] = optimizers;
      const at::Tensor both = a(x_row()).sum() + b(x_row()).sum() * (overflows ? kInf : 1);
      scale_loss(both, optimizers, {.loss_id = 0, .delay_unscale = true}).backward();
      scale_loss(a(x_row()).sum(), opt_a, {.loss_id = 1}).backward();
      scale_loss(b(x_row()).sum(), opt_b, {.loss_id = 2}).backward();
      const StateDict scales = state_dict(opt_a);
      EXPECT_EQ(scales.at("loss_scaler0"), (overflows ? ScalerState{512, 0} : ScalerState{1024, 1}))
          << level;
      EXPECT_EQ(scales.at("loss_scaler1"), (ScalerState{1024, 1})) << level;
      EXPECT_EQ(scales.at("loss_scaler2"), (ScalerState{1024, 1})) << level;
      if (!overflows) {
        EXPECT_TRUE(torch::allclose(scope_gradient(opt_a), 2 * x_row())) << level;
        EXPECT_TRUE(torch::allclose(scope_gradient(opt_b), 2 * x_row())) << level;
      }
      EXPECT_EQ(opt_a.step().skipped(), overflows) << level << ": one flag decides for both";
      EXPECT_EQ(opt_b.step().skipped(), overflows) << level;
    }
  }
}

TEST(LossScope, DeferredOptimizersOfOneLossSkipTogetherAndMoveItsScaleOnce) {
  for (const std::string& level : kLevels) {
    for (const bool overflows : {false, true}) {
      Line first;
      Line second;
      optim::FusedSGD first_sgd(first->parameters(), optim::FusedSGDOptions(0.1));
      torch::optim::SGD second_sgd(second->parameters(), 0.1);
      Options options = dynamic_losses(level);
      options.defer_unscale = true;
      auto [models, optimizers] =
          initialize(std::tie(first, second), std::tie(first_sgd, second_sgd), options);
      auto& [a, b] = models;
      auto& [opt_a, opt_b] = optimizers;
      const double factor = overflows ? kInf : 1;
      scale_loss(a(x_row()).sum() + b(x_row()).sum() * factor, optimizers).backward();
      EXPECT_EQ(opt_a.step().skipped(), overflows) << level;
      EXPECT_EQ(opt_b.step().skipped(), overflows) << level;
      EXPECT_EQ(state_dict(opt_a).at("loss_scaler0"),
                (overflows ? ScalerState{512, 0} : ScalerState{1024, 1}))
          << level;
    }
  }
}

TEST(LossScope, ClearedGradientsTakeTheirOverflowWithThem) {
  enum { kByOptimizer, kByModel, kToZeroByModel, kByBareNetwork, kByBareOptimizer };
  for (const std::string& level : kLevels) {
    for (const int by :
         {kByOptimizer, kByModel, kToZeroByModel, kByBareNetwork, kByBareOptimizer}) {
      Line net;
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [model, optimizer] = initialize(net, sgd, dynamic_losses(level));
      scale_loss(model(x_row()).sum() * kInf, optimizer).backward();
      if (by == kByOptimizer) optimizer.zero_grad();
      if (by == kByModel) model->zero_grad();
      if (by == kToZeroByModel) model->zero_grad(false);
      if (by == kByBareNetwork) net->zero_grad();
      if (by == kByBareOptimizer) sgd.zero_grad();
      scale_loss(model(x_row()).sum(), optimizer).backward();
      EXPECT_TRUE(optimizer.step().applied()) << level << by;
      EXPECT_EQ(optimizer.loss_scale(), 512) << level << by;
    }
  }
}

TEST(LossScope, ANetworkThatClearsItsGradientsLeavesThoseOfOthersToSkip) {
  Line first;
  Line second;
  std::vector<at::Tensor> parameters{first->line->weight, second->line->weight};
  torch::optim::SGD sgd(parameters, 0.1);
  auto [models, optimizer] = initialize(std::tie(first, second), sgd, dynamic_losses("O1"));
  auto& [a, b] = models;
  const auto backward = [&, &a = a, &b = b, &optimizer = optimizer](double factor) {
    scale_loss(a(x_row()).sum() * factor + b(x_row()).sum() * factor, optimizer).backward();
  };
  backward(kInf);
  a->zero_grad();
  backward(1);
  EXPECT_TRUE(optimizer.step().skipped());
  for (const bool set_to_none : {true, false}) {
    backward(kInf);
    a->zero_grad(set_to_none);
    b->zero_grad(set_to_none);
    backward(1);
    EXPECT_TRUE(optimizer.step().applied()) << set_to_none;
  }
}

/// Doubles and the loss of doubles: what float cannot hold of a scale must not show.
TEST(LossScope, GradientsOfDoublesAreExactAtAnyStaticScale) {
  const at::Tensor x = torch::tensor({{1 / 3.0, -2 / 3.0, 1e-9}}, at::kDouble);
  const auto is_exact = [&x](const at::Tensor& gradient, double times) {
    return gradient.scalar_type() == at::kDouble &&
           torch::allclose(gradient, x * times, /*rtol=*/1e-14, /*atol=*/0);
  };
  for (const std::string& level : kLevels) {
    for (const bool deferred : {false, true}) {
      Line net;
      net->to(at::kDouble);
      const at::Tensor before = net->line->weight.detach().clone();
      optim::FusedSGD sgd(net->parameters(), optim::FusedSGDOptions(1.0));
      Options options = at_level(level);
      options.loss_scale = 1000.1;
      options.defer_unscale = deferred;
      auto [model, optimizer] = initialize(net, sgd, options);
      const auto loss = [&, &model = model] { return model(x).sum(); };
      scale_loss(loss(), optimizer).backward();
      EXPECT_TRUE(deferred || is_exact(net->line->weight.grad(), 1)) << level;
      scale_loss(loss(), optimizer, {.delay_unscale = true}).backward();
      scale_loss(loss(), optimizer, {.delay_unscale = true}).backward();
      scale_loss(loss(), optimizer).backward();
      EXPECT_TRUE(deferred || is_exact(net->line->weight.grad(), 4)) << level;
      EXPECT_TRUE(optimizer.step().applied());
      EXPECT_TRUE(torch::allclose(net->line->weight, before - 4 * x, 1e-14, 1e-15)) << level;

      const at::Tensor input = x.clone().requires_grad_(true);
      auto gradients = torch::autograd::grad({optimizer.scale(input.mul(x).sum())}, {input});
      optimizer.unscale(gradients);
      EXPECT_TRUE(is_exact(gradients[0], 1)) << level;
    }
  }
  at::Tensor weight = torch::ones({1, 3}, at::kDouble).requires_grad_(true);
  torch::optim::SGD sgd(std::vector<at::Tensor>{weight}, 0.1);
  GradScaler scaler({.init_scale = 1000.1});
  scaler.scale(weight.mul(x).sum()).backward();
  scaler.unscale_(sgd);
  EXPECT_TRUE(is_exact(weight.grad(), 1));
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
  auto [model, optimizer] = initialize(net, sgd, dynamic_losses("O1"));
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
