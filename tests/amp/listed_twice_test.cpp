// LibTorch's C++ `parameters()` gives what two modules share twice, and optimizers step it twice.
#include <gmock/gmock.h>

#include <limits>
#include <sstream>

#include "amp/training.h"
#include "mezzo/error.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

/// One layer under two names, used twice.
struct SharedImpl : torch::nn::Module {
  SharedImpl()
      : line(register_module("a", torch::nn::Linear(torch::nn::LinearOptions(3, 1).bias(false)))) {
    register_module("b", line);
    const torch::NoGradGuard no_grad;
    line->weight.copy_(torch::tensor({{1.0F, -0.5F, 0.25F}}));
  }
  at::Tensor forward(const at::Tensor& x) { return line(x) + line(x); }
  torch::nn::Linear line;
};
TORCH_MODULE(Shared);

torch::optim::SGD sgd_of(const Shared& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.0625).momentum(0.5));
}

/// Without any of ours: `passes` backward passes before each of `steps` steps.
at::Tensor trained_in_float(int passes, int steps) {
  Shared net;
  EXPECT_EQ(net->parameters().size(), 2U);
  torch::optim::SGD sgd = sgd_of(net);
  for (int step = 0; step < steps; ++step) {
    sgd.zero_grad();
    for (int pass = 0; pass < passes; ++pass) net(row()).sum().backward();
    sgd.step();
  }
  return net->line->weight.detach().clone();
}

std::vector<Options> all_options() {
  std::vector<Options> all;
  for (const std::string& level : kLevels) {
    for (const std::optional<LossScale>& scale :
         {std::optional<LossScale>(), std::optional<LossScale>(128),
          std::optional<LossScale>("dynamic")}) {
      for (const bool deferred : {false, true}) {
        Options options = at_level(level);
        options.loss_scale = scale;
        options.defer_unscale = deferred;
        all.push_back(options);
      }
    }
  }
  return all;
}

std::string name_of(const Options& options) {
  return options.opt_level + (options.defer_unscale ? " deferred" : "") + " scale " +
         (options.loss_scale ? options.loss_scale->to_string() : "of the level");
}

TEST(ListedTwice, TrainsAsInFloatAtEveryLevelAndScale) {
  for (const int passes : {1, 2}) {
    const at::Tensor expected = trained_in_float(passes, 3);
    for (const Options& options : all_options()) {
      Shared net;
      torch::optim::SGD sgd = sgd_of(net);
      {
        auto [model, optimizer] = initialize(net, sgd, options);
        for (int step = 0; step < 3; ++step) {
          optimizer.zero_grad();
          for (int pass = 0; pass < passes; ++pass)
            scale_loss(model(row()).sum(), optimizer).backward();
          EXPECT_TRUE(optimizer.step().applied()) << name_of(options);
        }
        EXPECT_TRUE(torch::equal(master_params(optimizer)[0].to(at::kFloat), expected))
            << name_of(options) << ' ' << master_params(optimizer)[0] << expected;
        EXPECT_TRUE(master_params(optimizer)[1].is_same(master_params(optimizer)[0]));
        EXPECT_TRUE(torch::equal(net->line->weight, expected.to(net->line->weight.scalar_type())))
            << name_of(options);
      }
      for (const at::Tensor& listed : sgd.param_groups()[0].params())
        EXPECT_TRUE(listed.is_same(net->line->weight)) << name_of(options);
      EXPECT_TRUE(torch::equal(net->line->weight, expected)) << name_of(options);
    }
  }
}

TEST(ListedTwice, DelayedPassesAndClosuresTrainAsInFloat) {
  const at::Tensor expected = trained_in_float(2, 1);
  for (const Options& options : all_options()) {
    Shared net;
    torch::optim::SGD sgd = sgd_of(net);
    auto [model, optimizer] = initialize(net, sgd, options);
    const auto closure = [&model = model, &optimizer = optimizer] {
      optimizer.zero_grad();
      at::Tensor loss = model(row()).sum();
      scale_loss(loss, optimizer, {.delay_unscale = true}).backward();
      scale_loss(model(row()).sum(), optimizer).backward();
      return loss;
    };
    EXPECT_TRUE(optimizer.step(closure).applied()) << name_of(options);
    EXPECT_TRUE(torch::equal(net->line->weight.to(at::kFloat), expected)) << name_of(options);
  }
}

TEST(ListedTwice, AnOverflowMovesNothing) {
  for (const Options& options : all_options()) {
    if (!options.loss_scale) continue;
    Shared net;
    torch::optim::SGD sgd = sgd_of(net);
    auto [model, optimizer] = initialize(net, sgd, options);
    const at::Tensor before = net->line->weight.detach().clone();
    scale_loss(model(row()).sum() * kInf, optimizer).backward();
    EXPECT_TRUE(optimizer.step().skipped()) << name_of(options);
    EXPECT_TRUE(torch::equal(net->line->weight, before)) << name_of(options);
    EXPECT_FALSE(master_params(optimizer)[0].grad().defined()) << name_of(options);
  }
}

TEST(ListedTwice, AFileOfTheOptimizerGoesOn) {
  const at::Tensor expected = trained_in_float(1, 3);
  for (const std::string& level : kLevels) {
    std::stringstream model_file;
    std::stringstream optimizer_file;
    Shared net;
    for (int step = 0; step < 3; ++step) {
      Shared fresh;
      torch::optim::SGD sgd = sgd_of(fresh);
      auto [model, optimizer] = initialize(fresh, sgd, at_level(level));
      if (step > 0) {
        torch::load(model, model_file);
        torch::load(optimizer, optimizer_file);
      }
      scale_loss(model(row()).sum(), optimizer).backward();
      optimizer.step();
      EXPECT_EQ(optimizer.applied_steps(), step + 1) << level;
      std::stringstream().swap(model_file);
      std::stringstream().swap(optimizer_file);
      torch::save(model, model_file);
      torch::save(optimizer, optimizer_file);
      net = fresh;
    }
    EXPECT_TRUE(torch::equal(net->line->weight, expected)) << level << net->line->weight;
  }
}

TEST(ListedTwice, AddedLaterAndUnfrozenItStillHasOneMaster) {
  Shared net;
  net->line->weight.set_requires_grad(false);
  torch::optim::SGD sgd = sgd_of(net);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  net->line->weight.set_requires_grad(true);
  scale_loss(model(row()).sum(), optimizer).backward();
  EXPECT_TRUE(optimizer.step().applied());
  EXPECT_TRUE(master_params(optimizer)[1].is_same(master_params(optimizer)[0]));
  EXPECT_TRUE(torch::equal(net->line->weight.to(at::kFloat), trained_in_float(1, 1)));
}

TEST(ListedTwice, FusedOptimizersRefuseItClearly) {
  for (const std::string& level : kLevels) {
    for (const bool deferred : {false, true}) {
      Shared net;
      optim::FusedSGD sgd(net->parameters(), optim::FusedSGDOptions(0.125));
      Options options = at_level(level);
      options.defer_unscale = deferred;
      auto [model, optimizer] = initialize(net, sgd, options);
      const at::Tensor before = net->line->weight.detach().clone();
      scale_loss(model(row()).sum(), optimizer).backward();
      try {
        optimizer.step();
        ADD_FAILURE() << level;
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("listed twice")) << level;
      }
      EXPECT_TRUE(torch::equal(net->line->weight, before)) << level;
    }
  }
}

TEST(ListedTwice, GradScalerUnscalesOnce) {
  const at::Tensor expected = trained_in_float(1, 3);
  for (const bool by_hand : {false, true}) {
    Shared net;
    torch::optim::SGD sgd = sgd_of(net);
    GradScaler scaler({.init_scale = 128});
    for (int step = 0; step < 3; ++step) {
      sgd.zero_grad();
      scaler.scale(net(row()).sum()).backward();
      if (by_hand) {
        scaler.unscale_(sgd);
        EXPECT_TRUE(torch::equal(net->line->weight.grad(), 2 * row()));
      }
      EXPECT_TRUE(scaler.step(sgd).applied());
      scaler.update();
    }
    EXPECT_TRUE(torch::equal(net->line->weight, expected));
  }
}

}  // namespace
}  // namespace mezzo::amp
