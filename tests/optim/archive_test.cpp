#include <sstream>

#include "mezzo/error.h"
#include "mezzo/optim.h"
#include "optim/trajectory.h"

namespace mezzo::optim {
namespace {

using namespace testing_support;

template <typename From, typename To>
void carry_over(const From& from, To& to) {
  std::stringstream file;
  torch::save(from, file);
  torch::load(to, file);
}

void steps(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& params, int from,
           int to) {
  for (int step = from; step < to; ++step) {
    set_gradients(params, step);
    optimizer.step();
  }
}

TEST(Archive, AdamsStateCarriesOverBothWays) {
  const auto kept = make_parameters();
  torch::optim::Adam adam(kept, torch::optim::AdamOptions(0.02).betas({0.8, 0.99}).amsgrad(true));
  steps(adam, kept, 0, 5);

  const auto params = make_parameters();
  for (std::size_t i = 0; i < params.size(); ++i) params[i].detach().copy_(kept[i].detach());
  FusedAdam fused(params, FusedAdamOptions(1).adam_w_mode(false));
  carry_over(adam, fused);
  const auto& options = static_cast<FusedAdamOptions&>(fused.param_groups()[0].options());
  EXPECT_EQ(options.lr(), 0.02);
  EXPECT_FALSE(options.adam_w_mode()) << "what the file does not say stays";
  steps(adam, kept, 5, 10);
  steps(fused, params, 5, 10);
  EXPECT_LT(distance(params, kept), 1e-5);

  const auto back = make_parameters();
  for (std::size_t i = 0; i < back.size(); ++i) back[i].detach().copy_(params[i].detach());
  torch::optim::Adam again(back, torch::optim::AdamOptions(1));
  carry_over(fused, again);
  steps(again, back, 10, 15);
  steps(fused, params, 10, 15);
  EXPECT_LT(distance(params, back), 1e-5);
}

TEST(Archive, AdamWsStateCarriesOver) {
  const auto kept = make_parameters();
  torch::optim::AdamW adam(kept, torch::optim::AdamWOptions(0.02).weight_decay(0.1));
  steps(adam, kept, 0, 5);
  const auto params = make_parameters();
  for (std::size_t i = 0; i < params.size(); ++i) params[i].detach().copy_(kept[i].detach());
  FusedAdam fused(params);
  carry_over(adam, fused);
  steps(adam, kept, 5, 10);
  steps(fused, params, 5, 10);
  EXPECT_LT(distance(params, kept), 1e-5);
}

TEST(Archive, SgdsStateCarriesOverBothWays) {
  const auto kept = make_parameters();
  torch::optim::SGD sgd(kept, torch::optim::SGDOptions(0.02).momentum(0.9).dampening(0.5));
  steps(sgd, kept, 0, 5);
  const auto params = make_parameters();
  for (std::size_t i = 0; i < params.size(); ++i) params[i].detach().copy_(kept[i].detach());
  FusedSGD fused(params, FusedSGDOptions(1));
  carry_over(sgd, fused);
  steps(sgd, kept, 5, 10);
  steps(fused, params, 5, 10);
  EXPECT_LT(distance(params, kept), 1e-6);
  torch::optim::SGD again(kept, torch::optim::SGDOptions(1));
  carry_over(fused, again);
  steps(again, kept, 10, 15);
  steps(fused, params, 10, 15);
  EXPECT_LT(distance(params, kept), 1e-6);
}

// Three steps, a file, three more: the same bits as six.
template <typename Make>
void expect_exact_resume(const Make& make) {
  const auto params = make_parameters();
  auto straight = make(params);
  steps(straight, params, 0, 3);
  const auto copies = make_parameters();
  for (std::size_t i = 0; i < copies.size(); ++i) copies[i].detach().copy_(params[i].detach());
  auto resumed = make(copies);
  carry_over(straight, resumed);
  steps(straight, params, 3, 6);
  steps(resumed, copies, 3, 6);
  EXPECT_TRUE(identical(params, copies));
}

TEST(Archive, EveryOptimizerResumesBitForBit) {
  expect_exact_resume(
      [](const auto& params) { return FusedAdam(params, FusedAdamOptions(0.01).amsgrad(true)); });
  expect_exact_resume(
      [](const auto& params) { return FusedSGD(params, FusedSGDOptions(0.01).momentum(0.9)); });
  expect_exact_resume([](const auto& params) { return FusedLAMB(params); });
  expect_exact_resume([](const auto& params) {
    return FusedNovoGrad(params, FusedNovoGradOptions(0.01).norm_type(0));
  });
  expect_exact_resume([](const auto& params) { return FusedAdagrad(params); });
}

TEST(Archive, AdagradsStateCarriesOverBothWays) {
  const auto kept = make_parameters();
  torch::optim::Adagrad adagrad(kept, torch::optim::AdagradOptions(0.02).lr_decay(0.1));
  steps(adagrad, kept, 0, 5);
  const auto params = make_parameters();
  for (std::size_t i = 0; i < params.size(); ++i) params[i].detach().copy_(kept[i].detach());
  FusedAdagrad fused(params, FusedAdagradOptions(1));
  carry_over(adagrad, fused);
  steps(adagrad, kept, 5, 10);
  steps(fused, params, 5, 10);
  EXPECT_LT(distance(params, kept), 1e-5);
  torch::optim::Adagrad again(kept, torch::optim::AdagradOptions(1));
  carry_over(fused, again);
  steps(again, kept, 10, 15);
  steps(fused, params, 10, 15);
  EXPECT_LT(distance(params, kept), 1e-5);
}

TEST(Archive, AdamsStateIsNotNovoGrads) {
  const auto params = make_parameters();
  FusedAdam adam(params);
  FusedNovoGrad novograd(params);
  steps(adam, params, 0, 1);
  EXPECT_THROW(carry_over(adam, novograd), Error);
  steps(novograd, params, 1, 2);
  EXPECT_THROW(carry_over(novograd, adam), Error);
}

TEST(Archive, OptionsOfAnotherOptimizerAreAnErrorThoughNothingWasStepped) {
  const auto params = make_parameters();
  const torch::optim::Adam adam(params, torch::optim::AdamOptions(0.1));
  const torch::optim::SGD sgd(params, torch::optim::SGDOptions(0.1));
  FusedAdam fused_adam(params, FusedAdamOptions(0.02));
  FusedSGD fused_sgd(params, FusedSGDOptions(0.03));
  FusedLAMB lamb(params, FusedLAMBOptions(0.04));
  FusedNovoGrad novograd(params, FusedNovoGradOptions(0.05));
  FusedAdagrad adagrad(params, FusedAdagradOptions(0.06));
  EXPECT_THROW(carry_over(sgd, fused_adam), Error);
  EXPECT_THROW(carry_over(lamb, fused_adam), Error);
  EXPECT_THROW(carry_over(adam, fused_sgd), Error);
  EXPECT_THROW(carry_over(adam, lamb), Error);
  EXPECT_THROW(carry_over(fused_adam, novograd), Error);
  EXPECT_THROW(carry_over(adam, adagrad), Error);
  double lr = 0.02;
  for (torch::optim::Optimizer* const each :
       std::vector<torch::optim::Optimizer*>{&fused_adam, &fused_sgd, &lamb, &novograd, &adagrad}) {
    EXPECT_NEAR(each->param_groups()[0].options().get_lr(), lr, 1e-12);
    lr += 0.01;
  }
}

TEST(Archive, OptionsOutOfRangeAndStatesOfWrongSizesAreErrorsThatChangeNothing) {
  const auto params = make_parameters();
  torch::optim::Adam adam(params, torch::optim::AdamOptions(0.1).amsgrad(true));
  steps(adam, params, 0, 1);
  FusedAdam fused(params, FusedAdamOptions(0.02));
  adam.param_groups()[0].options().set_lr(-1);
  EXPECT_THROW(carry_over(adam, fused), ConfigError);
  adam.param_groups()[0].options().set_lr(0.1);
  auto& state = *adam.state().at(params[1].unsafeGetTensorImpl());
  static_cast<torch::optim::AdamParamState&>(state).max_exp_avg_sq(torch::zeros({7}));
  EXPECT_THROW(carry_over(adam, fused), Error);
  EXPECT_TRUE(fused.state().empty());
  EXPECT_EQ(fused.param_groups()[0].options().get_lr(), 0.02);
}

TEST(Archive, WhatTheFileHasNoStateForHasNoneAfterwards) {
  const auto params = make_parameters();
  const auto others = make_parameters();
  FusedAdam adam(params, FusedAdamOptions(0.01));
  const FusedAdam fresh(others, FusedAdamOptions(0.01));
  steps(adam, params, 0, 3);
  carry_over(fresh, adam);
  EXPECT_TRUE(adam.state().empty());
}

TEST(Archive, OwnOptionsAndBitsSurvive) {
  const auto params = make_parameters();
  FusedAdam adam(params,
                 FusedAdamOptions(0.02).adam_w_mode(false).eps_inside_sqrt(true).max_grad_norm(3));
  steps(adam, params, 0, 3);
  const auto copies = make_parameters();
  for (std::size_t i = 0; i < copies.size(); ++i) copies[i].detach().copy_(params[i].detach());
  FusedAdam loaded(copies);
  carry_over(adam, loaded);
  const auto& options = static_cast<FusedAdamOptions&>(loaded.param_groups()[0].options());
  EXPECT_FALSE(options.adam_w_mode());
  EXPECT_TRUE(options.eps_inside_sqrt());
  EXPECT_EQ(options.max_grad_norm(), 3);
  steps(adam, params, 3, 6);
  steps(loaded, copies, 3, 6);
  EXPECT_TRUE(identical(params, copies));
}

TEST(Archive, StateOfAnotherOptimizerOrShapeIsAnErrorAndChangesNothing) {
  const auto params = make_parameters();
  FusedAdam adam(params, FusedAdamOptions(0.02));
  FusedSGD sgd(params, FusedSGDOptions(0.03).momentum(0.9));
  set_gradients(params, 0);
  sgd.step();
  EXPECT_THROW(carry_over(sgd, adam), Error);
  adam.step();
  EXPECT_THROW(carry_over(adam, sgd), Error);
  EXPECT_EQ(adam.param_groups()[0].options().get_lr(), 0.02);
  EXPECT_EQ(sgd.param_groups()[0].options().get_lr(), 0.03);

  FusedAdam fewer(std::vector<at::Tensor>{params[0]});
  EXPECT_THROW(carry_over(adam, fewer), Error);
  auto others = make_parameters();
  others[1] = torch::randn({6}).requires_grad_(true);
  FusedAdam other_shape(others);
  EXPECT_THROW(carry_over(adam, other_shape), Error);
  EXPECT_TRUE(other_shape.state().empty());
}

}  // namespace
}  // namespace mezzo::optim
