// Gradients that are unscaled already, and those that are not: backward passes of the caller's own.
#include <gmock/gmock.h>

#include <functional>
#include <limits>

#include "amp/training.h"
#include "mezzo/error.h"
#include "mezzo/fp16_utils.h"

namespace mezzo::fp16_utils {
namespace {

using amp::Line;
using testing::HasSubstr;

constexpr double kInfiniteGradient = std::numeric_limits<double>::infinity();

at::Tensor row() {
  return torch::tensor({{0.5F, -1.0F, 2.0F}});
}

/// A line in float or half, its optimizer and the wrapper.
struct Training {
  explicit Training(at::ScalarType type,
                    FP16OptimizerOptions options = {.static_loss_scale = 128, .verbose = false})
      : x(row().to(type)) {
    net->to(type);
    sgd.emplace(net->parameters(), torch::optim::SGDOptions(0.125));
    optimizer.emplace(*sgd, options);
  }

  /// A backward pass that the optimizer does not know of.
  void own_backward(double factor = 1) {
    (net(x).sum().to(at::kFloat) * factor * optimizer->loss_scale()).backward();
  }

  at::Tensor weight() const { return net->line->weight.detach().to(at::kFloat, false, true); }

  Line net;
  at::Tensor x;
  std::optional<torch::optim::SGD> sgd;
  std::optional<FP16_Optimizer> optimizer;
};

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const std::vector<at::ScalarType> kFloatAndHalf{at::kFloat, at::kHalf};

/// Ways to clear everything: the wrapper's, the inner optimizer's, that and the network's.
std::vector<std::function<void(Training&)>> ways_to_clear() {
  return {[](Training& t) { t.optimizer->zero_grad(); },
          [](Training& t) { t.optimizer->zero_grad(/*set_to_none=*/true); },
          [](Training& t) { t.sgd->zero_grad(); },
          [](Training& t) {
            t.sgd->zero_grad();
            t.net->zero_grad();
          }};
}

TEST(Fp16OptimizerGradients, OwnBackwardPassesAreUnscaledInEveryIterationHoweverTheyWereCleared) {
  for (const at::ScalarType type : kFloatAndHalf) {
    const auto ways = ways_to_clear();
    for (std::size_t way = 0; way < ways.size(); ++way) {
      Training t(type);
      at::Tensor expected = t.weight();
      for (int step = 0; step < 3; ++step) {
        ways[way](t);
        t.own_backward();
        t.optimizer->update_master_grads();
        t.optimizer->update_master_grads();  // nothing new
        t.optimizer->clip_master_grads(100);
        t.optimizer->update_master_grads();
        t.optimizer->step();
        expected = expected - 0.125 * row();
        EXPECT_TRUE(torch::equal(t.weight(), expected)) << type << " way " << way << " " << step;
      }
    }
  }
}

TEST(Fp16OptimizerGradients, WhatIsAddedToUnscaledGradientsIsAnError) {
  for (const at::ScalarType type : kFloatAndHalf) {
    for (const bool after_step : {false, true}) {
      Training t(type);
      t.own_backward();
      t.optimizer->update_master_grads();
      if (after_step) t.optimizer->step();
      const at::Tensor before = t.weight();
      t.own_backward();
      EXPECT_THAT(message_of([&] { t.optimizer->update_master_grads(); }),
                  HasSubstr("unscaled already"))
          << type << after_step;
      t.optimizer->zero_grad();
      t.own_backward();
      t.optimizer->update_master_grads();
      t.optimizer->step();
      EXPECT_TRUE(torch::equal(t.weight(), before - 0.125 * row())) << type << after_step;
    }
  }
}

TEST(Fp16OptimizerGradients, AtAScaleOfOneFloatGradientsAddUp) {
  Training t(at::kFloat, {.verbose = false});
  const at::Tensor before = t.weight();
  for (int pass = 0; pass < 2; ++pass) {
    t.own_backward();
    t.optimizer->update_master_grads();
  }
  t.optimizer->step();
  EXPECT_TRUE(torch::equal(t.weight(), before - 0.25 * row()));
}

TEST(Fp16OptimizerGradients, AStepByGradientsThatWereNotUpdatedIsAnError) {
  for (const at::ScalarType type : kFloatAndHalf) {
    Training t(type);
    const at::Tensor before = t.weight();
    t.own_backward();
    EXPECT_THAT(message_of([&] { t.optimizer->step(); }), HasSubstr("still scaled")) << type;
    t.optimizer->update_master_grads();
    t.optimizer->step();
    t.sgd->zero_grad();
    t.own_backward();
    EXPECT_THAT(message_of([&] { t.optimizer->step(); }), HasSubstr("still scaled")) << type;
    EXPECT_TRUE(torch::equal(t.weight(), before - 0.125 * row())) << type;
    t.optimizer->update_master_grads();
    t.optimizer->step();
    EXPECT_TRUE(torch::equal(t.weight(), before - 0.25 * row())) << type;
  }
}

TEST(Fp16OptimizerGradients, TheCallerMayChangeThemBetweenUpdateAndStep) {
  for (const at::ScalarType type : kFloatAndHalf) {
    Training t(type);
    const at::Tensor before = t.weight();
    for (const bool in_place : {true, false}) {
      t.optimizer->zero_grad();
      t.own_backward();
      t.optimizer->update_master_grads();
      at::Tensor& grad = t.optimizer->param_groups()[0].params()[0].mutable_grad();
      if (in_place) {
        grad.mul_(0.5);
      } else {
        grad = grad * 0.5;
      }
      t.optimizer->step();
    }
    EXPECT_TRUE(torch::equal(t.weight(), before - 0.125 * row())) << type;
  }
}

TEST(Fp16OptimizerGradients, AnOverflowThatWasClearedBehindItsBackSkipsNothing) {
  for (const at::ScalarType type : kFloatAndHalf) {
    Training t(type);
    const at::Tensor before = t.weight();
    t.own_backward(kInfiniteGradient);
    t.optimizer->update_master_grads();
    EXPECT_TRUE(t.optimizer->overflow());
    t.sgd->zero_grad();
    t.own_backward();
    t.optimizer->update_master_grads();
    EXPECT_FALSE(t.optimizer->overflow()) << type;
    t.optimizer->step();
    EXPECT_TRUE(torch::equal(t.weight(), before - 0.125 * row())) << type;
  }
}

TEST(Fp16OptimizerGradients, AreClearedToZerosWithTheWeightsToo) {
  for (const at::ScalarType type : kFloatAndHalf) {
    Training t(type);
    const at::Tensor before = t.weight();
    for (int i = 0; i < 2; ++i) {
      t.own_backward();
      t.optimizer->update_master_grads();
      t.optimizer->zero_grad(/*set_to_none=*/false);
      const at::Tensor& grad = t.net->parameters()[0].grad();
      ASSERT_TRUE(grad.defined()) << type;
      EXPECT_EQ(grad.abs().max().item<float>(), 0) << type;
      t.own_backward();
      t.optimizer->update_master_grads();
      t.optimizer->step();
      t.optimizer->zero_grad(/*set_to_none=*/false);
    }
    EXPECT_TRUE(torch::equal(t.weight(), before - 0.25 * row())) << type;
  }
}

TEST(Fp16OptimizerGradients, OfAParameterThatIsListedTwiceAreUnscaledOnce) {
  for (const at::ScalarType type : kFloatAndHalf) {
    Line net;
    net->to(type);
    torch::optim::SGD sgd({net->line->weight, net->line->weight},
                          torch::optim::SGDOptions(0.0625).momentum(0.5));
    Line in_float;
    torch::optim::SGD float_sgd({in_float->line->weight, in_float->line->weight},
                                torch::optim::SGDOptions(0.0625).momentum(0.5));
    const amp::Listener listener;
    FP16_Optimizer optimizer(sgd, {.static_loss_scale = 128});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      optimizer.backward(net(row().to(type)).sum());
      optimizer.step();
      float_sgd.zero_grad();
      in_float(row()).sum().backward();
      float_sgd.step();
      EXPECT_TRUE(torch::equal(net->line->weight.to(at::kFloat), in_float->line->weight)) << type;
    }
  }
}

}  // namespace
}  // namespace mezzo::fp16_utils
