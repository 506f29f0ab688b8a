#include "optim/kinds.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "optim/optimizer_kinds.h"

namespace mezzo::optim {
namespace {

std::vector<at::Tensor> one_parameter() {
  at::Tensor param = torch::ones({3}).requires_grad_(true);
  param.mutable_grad() = torch::ones({3});
  return {param};
}

/// One of each class that LibTorch has.
std::vector<std::unique_ptr<torch::optim::Optimizer>> of_torch() {
  std::vector<std::unique_ptr<torch::optim::Optimizer>> all;
  all.push_back(std::make_unique<torch::optim::SGD>(
      one_parameter(), torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.3)));
  all.push_back(std::make_unique<torch::optim::Adam>(
      one_parameter(), torch::optim::AdamOptions().amsgrad(true).weight_decay(0.3)));
  all.push_back(std::make_unique<torch::optim::AdamW>(
      one_parameter(), torch::optim::AdamWOptions().amsgrad(true).weight_decay(0.3)));
  all.push_back(std::make_unique<torch::optim::Adagrad>(
      one_parameter(), torch::optim::AdagradOptions().weight_decay(0.3)));
  all.push_back(std::make_unique<torch::optim::RMSprop>(
      one_parameter(),
      torch::optim::RMSpropOptions().momentum(0.9).centered(true).weight_decay(0.3)));
  return all;
}

TEST(OptimizerKinds, NameEveryClass) {
  std::vector<std::string> names;
  for (const auto& optimizer : of_torch()) names.push_back(name_of(*optimizer));
  names.push_back(name_of(torch::optim::LBFGS(one_parameter())));
  for (const auto& kind : testing_support::kinds()) {
    names.push_back(name_of(*kind.make(one_parameter())));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "LBFGS",
                                             "AdamW", "SGD", "FusedLAMB", "FusedNovoGrad",
                                             "Adagrad", "SGD"}));
}

TEST(OptimizerKinds, AFusedAdamHasTheNameOfItsMode) {
  EXPECT_EQ(name_of(FusedAdam(one_parameter(), FusedAdamOptions().adam_w_mode(false))), "Adam");
  ParamGroups groups;
  groups.emplace_back(one_parameter(),
                      std::make_unique<FusedAdamOptions>(FusedAdamOptions().adam_w_mode(false)));
  groups.emplace_back(one_parameter());
  EXPECT_EQ(name_of(FusedAdam(groups, FusedAdamOptions())), "Adam or AdamW");
}

struct OwnSgd : torch::optim::SGD {
  using SGD::SGD;
};
struct Foreign : torch::optim::Optimizer {
  explicit Foreign(std::vector<at::Tensor> params)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(params))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure) override { return {}; }
};

TEST(OptimizerKinds, AreThoseOfDerivedClassesAndNoneOfOthers) {
  EXPECT_EQ(name_of(OwnSgd(one_parameter(), 0.1)), "SGD");
  EXPECT_EQ(kind_of(Foreign(one_parameter())), nullptr);
  EXPECT_NE(name_of(Foreign(one_parameter())).find("Foreign"), std::string::npos);
}

TEST(OptimizerKinds, ReadTheCompilersNamesOfOlderFiles) {
  EXPECT_EQ(name_from_file(typeid(FusedAdagrad).name()), "Adagrad");
  EXPECT_EQ(name_from_file(typeid(FusedLAMB).name()), "FusedLAMB");
  EXPECT_EQ(name_from_file(typeid(FusedNovoGrad).name()), "FusedNovoGrad");
  EXPECT_EQ(name_from_file("SGD"), "SGD");
  EXPECT_EQ(name_from_file("someone's"), "someone's");
}

TEST(OptimizerKinds, VisitEveryTensorAfterAStep) {
  const std::vector<std::size_t> expected{1, 3, 3, 1, 3};
  const auto all = of_torch();
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i]->step();
    ASSERT_EQ(all[i]->state().size(), 1U) << name_of(*all[i]);
    ParamState& state = *all[i]->state().begin()->second;
    const StateKind* const kind = kind_of(state);
    ASSERT_NE(kind, nullptr) << name_of(*all[i]);
    EXPECT_EQ(kind, kind_of(*all[i])->state) << name_of(*all[i]);
    std::size_t tensors = 0;
    kind->visit(state, [&](at::Tensor&) { ++tensors; });
    EXPECT_EQ(tensors, expected[i]) << name_of(*all[i]);
  }
}

TEST(OptimizerKinds, OfFusedOptimizersKnowTheirStates) {
  for (const auto& kind : testing_support::kinds()) {
    const auto optimizer = kind.make(one_parameter());
    optimizer->step();
    const ParamState& state = *optimizer->state().begin()->second;
    EXPECT_EQ(*kind_of(*optimizer)->state->type, typeid(state)) << kind.name;
  }
}

TEST(OptimizerKinds, SetTheCountOfThoseThatCount) {
  torch::optim::AdamWParamState adam;
  kind_of(adam)->set_step(adam, 7);
  EXPECT_EQ(adam.step(), 7);
  torch::optim::AdagradParamState sum;
  kind_of(sum)->set_step(sum, 8);
  EXPECT_EQ(sum.step(), 8);
  torch::optim::RMSpropParamState average;
  kind_of(average)->set_step(average, 9);
  EXPECT_EQ(average.step(), 9);
  EXPECT_EQ(kind_of(torch::optim::SGDParamState())->set_step, nullptr);
}

TEST(OptimizerKinds, FindTheDecayOfAnyOptions) {
  for (const auto& optimizer : of_torch()) {
    double* const decay = weight_decay_of(optimizer->param_groups()[0].options());
    ASSERT_NE(decay, nullptr) << name_of(*optimizer);
    EXPECT_EQ(*decay, 0.3) << name_of(*optimizer);
  }
  for (const auto& kind : testing_support::kinds()) {
    const auto optimizer = kind.make(one_parameter());
    EXPECT_NE(weight_decay_of(optimizer->param_groups()[0].options()), nullptr) << kind.name;
  }
  torch::optim::LBFGSOptions none;
  EXPECT_EQ(weight_decay_of(none), nullptr);
}

TEST(OptimizerKinds, MakeTheStatesThatAdagradExpects) {
  torch::optim::Adagrad adagrad(one_parameter(),
                                torch::optim::AdagradOptions().initial_accumulator_value(0.25));
  adagrad.state().clear();
  kind_of(adagrad)->make_states(adagrad);
  ASSERT_EQ(adagrad.state().size(), 1U);
  const auto& state =
      static_cast<torch::optim::AdagradParamState&>(*adagrad.state().begin()->second);
  EXPECT_TRUE(torch::equal(state.sum(), torch::full({3}, 0.25)));
  EXPECT_EQ(state.step(), 0);
  adagrad.step();
}

}  // namespace
}  // namespace mezzo::optim
