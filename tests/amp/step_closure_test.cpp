#include <gmock/gmock.h>

#include <limits>

#include "amp/param_state.h"
#include "amp/training.h"
#include "mezzo/error.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

/// A convex problem: fit a line.
struct Fit {
  at::Tensor x = torch::linspace(-1, 1, 30).reshape({10, 3});
  at::Tensor y = x.matmul(torch::tensor({{2.0F}, {-1.0F}, {0.5F}}));
};

Options dynamic_closure(const std::string& level) {
  Options options = at_level(level);
  options.loss_scale = "dynamic";
  return options;
}

/// Each level with SGD and with L-BFGS, which in half alone divides by zero.
std::vector<std::pair<std::string, bool>> levels_and_optimizers() {
  std::vector<std::pair<std::string, bool>> all;
  for (const std::string& level : kLevels) {
    all.emplace_back(level, false);
    if (level != "O3") all.emplace_back(level, true);
  }
  return all;
}

TEST(StepClosure, LbfgsFitsAtEveryLevel) {
  for (const std::string& level : kLevels) {
    if (level == "O3") continue;  // L-BFGS in half alone divides by zero
    const Fit fit;
    Line net;
    torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(8));
    auto [model, optimizer] = initialize(net, lbfgs, at_level(level));
    const auto closure = [&model = model, &optimizer = optimizer, &fit] {
      optimizer.zero_grad();
      const at::Tensor loss = torch::mse_loss(model(fit.x), fit.y);
      scale_loss(loss, optimizer).backward();
      return loss;
    };
    const double first = closure().item<double>();
    for (int step = 0; step < 5; ++step) EXPECT_TRUE(optimizer.step(closure).applied());
    EXPECT_LT(closure().item<double>(), 0.1 * first) << level;
    EXPECT_EQ(optimizer.applied_steps(), 5);
  }
}

TEST(StepClosure, AnEvaluationThatOverflowsIsRepeatedAtALowerScale) {
  for (const auto& [level, lbfgs] : levels_and_optimizers()) {
    const Fit fit;
    Line net;
    std::unique_ptr<torch::optim::Optimizer> inner;
    if (lbfgs) {
      inner = std::make_unique<torch::optim::LBFGS>(net->parameters(),
                                                    torch::optim::LBFGSOptions(0.5).max_iter(8));
    } else {
      inner = std::make_unique<torch::optim::SGD>(net->parameters(), 0.1);
    }
    auto [model, optimizer] = initialize(net, *inner, dynamic_closure(level));
    int evaluations = 0;
    const StepResult result =
        optimizer.step([&model = model, &optimizer = optimizer, &fit, &evaluations] {
          optimizer.zero_grad();
          at::Tensor loss = torch::mse_loss(model(fit.x), fit.y);
          if (++evaluations < 4) loss = loss * std::numeric_limits<double>::infinity();
          scale_loss(loss, optimizer).backward();
          return loss;
        });
    EXPECT_TRUE(result.applied()) << level;
    EXPECT_GE(evaluations, 4) << level;
    EXPECT_EQ(optimizer.loss_scale(), 1024 / 8) << level;
    EXPECT_EQ(optimizer.skipped_steps(), 0) << level;
    EXPECT_TRUE(net->line->weight.isfinite().all().item<bool>()) << level;
  }
}

TEST(StepClosure, GivesUpAfter20EvaluationsWithEverythingAsBefore) {
  for (const auto& [level, lbfgs] : levels_and_optimizers()) {
    const Fit fit;
    Line net;
    std::unique_ptr<torch::optim::Optimizer> inner;
    if (lbfgs) {
      inner = std::make_unique<torch::optim::LBFGS>(net->parameters(),
                                                    torch::optim::LBFGSOptions(0.5).max_iter(8));
    } else {
      inner = std::make_unique<torch::optim::SGD>(net->parameters(), 0.1);
    }
    auto [model, optimizer] = initialize(net, *inner, dynamic_closure(level));
    const at::Tensor master = master_params(optimizer)[0].detach().clone();
    const at::Tensor weight = net->line->weight.detach().clone();
    int evaluations = 0;
    // L-BFGS moves the weights after its first evaluation; the overflow comes later.
    const int good = lbfgs ? 3 : 0;
    const StepResult result = optimizer.step([&, &model = model, &optimizer = optimizer] {
      optimizer.zero_grad();
      at::Tensor loss = torch::mse_loss(model(fit.x), fit.y);
      if (++evaluations > good) loss = loss * std::numeric_limits<double>::infinity();
      scale_loss(loss, optimizer).backward();
      return loss;
    });
    EXPECT_TRUE(result.skipped()) << level;
    EXPECT_EQ(evaluations, good + 20) << level;
    EXPECT_TRUE(torch::equal(master_params(optimizer)[0], master));
    EXPECT_TRUE(torch::equal(net->line->weight, weight));
    EXPECT_EQ(optimizer.skipped_steps(), 1);
    EXPECT_TRUE(inner->state().empty());
  }
}

TEST(StepClosure, OnlyThoseThatEvaluateAgainArePaidABackup) {
  Line net;
  const std::vector<at::Tensor> params = net->parameters();
  EXPECT_TRUE(detail::evaluates_repeatedly(torch::optim::LBFGS(params)));
  EXPECT_FALSE(detail::evaluates_repeatedly(torch::optim::AdamW(params)));
  EXPECT_FALSE(detail::evaluates_repeatedly(optim::FusedAdam(params)));
  EXPECT_FALSE(detail::evaluates_repeatedly(optim::FusedSGD(params, 0.1)));
  EXPECT_FALSE(detail::evaluates_repeatedly(optim::FusedLAMB(params)));
  EXPECT_FALSE(detail::evaluates_repeatedly(optim::FusedNovoGrad(params)));
  EXPECT_FALSE(detail::evaluates_repeatedly(optim::FusedAdagrad(params)));
}

/// Keeps a sum of gradients, in a class of states that nobody else knows.
struct OwnState : torch::optim::OptimizerCloneableParamState<OwnState> {
  at::Tensor sum;
};
/// Adds a tensor to what SGD keeps.
struct DerivedState : torch::optim::SGDParamState {
  at::Tensor sum;
  std::unique_ptr<OptimizerParamState> clone() const {
    return std::make_unique<DerivedState>(*this);
  }
};

template <typename State>
struct OwnOptimizer : torch::optim::Optimizer {
  explicit OwnOptimizer(std::vector<at::Tensor> params)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(params))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure closure) override {
    at::Tensor loss;
    if (closure) {
      const torch::AutoGradMode with_gradients(true);
      loss = closure();
    }
    const torch::NoGradGuard no_grad;
    for (at::Tensor& param : param_groups()[0].params()) {
      auto& slot = state()[param.unsafeGetTensorImpl()];
      if (slot == nullptr) {
        auto made = std::make_unique<State>();
        made->sum = torch::zeros_like(param);
        slot = std::move(made);
      }
      static_cast<State&>(*slot).sum.add_(param.grad());
      param.sub_(0.1 * param.grad());
    }
    return loss;
  }
};

template <typename State>
void expect_refused(const std::string& name) {
  const Fit fit;
  Line net;
  OwnOptimizer<State> own(net->parameters());
  auto [model, optimizer] = initialize(net, own, at_level("O1"));
  int evaluations = 0;
  const auto closure = [&, &model = model, &optimizer = optimizer] {
    ++evaluations;
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(model(fit.x), fit.y);
    scale_loss(loss, optimizer).backward();
    return loss;
  };
  EXPECT_TRUE(optimizer.step(closure).applied()) << "there is no state yet that could be lost";
  const auto before = values_of(*net);
  const at::Tensor key = net->line->weight;
  const at::Tensor sum =
      static_cast<State&>(*own.state().at(key.unsafeGetTensorImpl())).sum.clone();
  const int evaluated = evaluations;
  const auto step_again = [&closure, &optimizer = optimizer] { optimizer.step(closure); };
  EXPECT_THAT(step_again, testing::ThrowsMessage<UnsupportedError>(testing::AllOf(
                              testing::HasSubstr("[step]"), testing::HasSubstr(name))));
  EXPECT_EQ(evaluations, evaluated);
  EXPECT_TRUE(same_values(values_of(*net), before));
  EXPECT_TRUE(
      torch::equal(static_cast<State&>(*own.state().at(key.unsafeGetTensorImpl())).sum, sum));
  // Without a closure it steps as before.
  closure();
  EXPECT_TRUE(optimizer.step().applied());
  EXPECT_FALSE(same_values(values_of(*net), before));
}

TEST(StepClosure, IsRefusedWhereAStateCannotBeCopiedByTheNameOfItsClass) {
  expect_refused<OwnState>("OwnState");
  expect_refused<DerivedState>("DerivedState");
}

TEST(StepClosure, AnExceptionOfTheClosureLeavesWeightsAsBefore) {
  const Fit fit;
  Line net;
  torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(8));
  auto [model, optimizer] = initialize(net, lbfgs, at_level("O1"));
  const auto before = values_of(*net);
  int evaluations = 0;
  const auto step = [&, &model = model, &optimizer = optimizer] {
    optimizer.step([&] {
      optimizer.zero_grad();
      const at::Tensor loss = torch::mse_loss(model(fit.x), fit.y);
      scale_loss(loss, optimizer).backward();
      if (++evaluations == 3) throw std::runtime_error("from the user");
      return loss;
    });
  };
  EXPECT_THROW(step(), std::runtime_error);
  EXPECT_TRUE(same_values(values_of(*net), before));
}

}  // namespace
}  // namespace mezzo::amp
