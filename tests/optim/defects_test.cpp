// Defects that were found in Apex's optimizers and their kernels, each as a test that Mezzo has not
// got it. The numbers go on from tests/amp/defects_test.cpp.
#include "mezzo/optim.h"
#include "optim/trajectory.h"

namespace mezzo::optim {
namespace {

using namespace testing_support;

at::Tensor leaf(const std::vector<double>& values) {
  return torch::tensor(values, at::kFloat).requires_grad_(true);
}

void give_gradient(const at::Tensor& weight, const std::vector<double>& values) {
  weight.mutable_grad() = torch::tensor(values, at::kFloat);
}

const torch::optim::AdamParamState& adam_state(const torch::optim::Optimizer& optimizer,
                                               const at::Tensor& weight) {
  return static_cast<const torch::optim::AdamParamState&>(
      *optimizer.state().at(weight.unsafeGetTensorImpl()));
}

TEST(Defect, Number19AWeightOfNormZeroOrWithoutGradientKeepsItsDecay) {
  const at::Tensor silent = leaf({3, -4});
  const at::Tensor zero = leaf({0, 0});
  torch::optim::SGD sgd({silent, zero}, torch::optim::SGDOptions(0.5).weight_decay(0.1));
  LARC larc(sgd);
  give_gradient(silent, {0, 0});
  give_gradient(zero, {2, 1});
  larc.step();
  EXPECT_TRUE(torch::allclose(silent, torch::tensor({3 - 0.5 * 0.3, -4 + 0.5 * 0.4}, at::kFloat)))
      << "decay is lost where the gradient is zero";
  EXPECT_TRUE(torch::allclose(zero, torch::tensor({-1.0F, -0.5F})))
      << "a weight that is zero takes the step as it is";
}

TEST(Defect, Number20TheFirstStepIsEachTensorsOwn) {
  const at::Tensor early = leaf({1, 2});
  const at::Tensor late = leaf({1, 2});
  FusedSGD sgd({early, late}, FusedSGDOptions(0.25).momentum(0.5).dampening(0.5));
  give_gradient(early, {4, 8});
  sgd.step();
  give_gradient(late, {4, 8});
  early.mutable_grad() = at::Tensor();
  sgd.step();
  EXPECT_TRUE(torch::equal(late, early)) << "the late one's momentum began as if it had been there";
}

TEST(Defect, Number21TheCountFollowsTheStepsOwnFlag) {
  const at::Tensor weight = leaf({1, -2, 3});
  const at::Tensor reference = leaf({1, -2, 3});
  FusedAdam adam(std::vector<at::Tensor>{weight}, FusedAdamOptions(0.1).weight_decay(0.01));
  torch::optim::AdamW adamw(std::vector<at::Tensor>{reference},
                            torch::optim::AdamWOptions(0.1).weight_decay(0.01));
  std::int64_t taken = 0;
  for (const bool skip : {true, false, true, true, false, false, true, false}) {
    for (const at::Tensor& each : {weight, reference}) {
      give_gradient(each, {0.5, 1.0 + static_cast<double>(taken), -2});
    }
    adam.step_unless(torch::full({1}, skip ? 1.0 : 0.0, at::kFloat));
    if (skip) {
      EXPECT_EQ(adam.state().empty() ? 0 : adam_state(adam, weight).step(), taken);
      continue;
    }
    adamw.step();
    EXPECT_EQ(adam_state(adam, weight).step(), ++taken);
    EXPECT_TRUE(torch::allclose(weight, reference, 1e-6, 1e-7)) << "after " << taken;
  }
}

TEST(Defect, Number22LambLeavesGradientsKnowsNoBoundOfZeroAndEachGroupsOwn) {
  const at::Tensor free = leaf({1, 2});
  const at::Tensor bound = leaf({2, 1});
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{free},
                      std::make_unique<FusedLAMBOptions>(FusedLAMBOptions().max_grad_norm(0)));
  groups.emplace_back(std::vector<at::Tensor>{bound},
                      std::make_unique<FusedLAMBOptions>(FusedLAMBOptions().max_grad_norm(0.5)));
  FusedLAMB lamb(groups);
  give_gradient(free, {3, 0});
  give_gradient(bound, {0, 4});
  lamb.step();
  EXPECT_TRUE(torch::equal(free.grad(), torch::tensor({3.0F, 0.0F}))) << "overwritten";
  EXPECT_TRUE(torch::equal(bound.grad(), torch::tensor({0.0F, 4.0F}))) << "overwritten";
  EXPECT_TRUE(free.isfinite().all().item<bool>()) << "divided by a bound of zero";
  // The norm over both groups is 5.
  EXPECT_TRUE(torch::allclose(adam_state(lamb, free).exp_avg(), torch::tensor({0.3F, 0.0F})));
  EXPECT_TRUE(
      torch::allclose(adam_state(lamb, bound).exp_avg(), torch::tensor({0.0F, 0.04F}), 1e-4, 1e-7));
}

TEST(Defect, Number23GradientsMayBecomeMoreAfterNovoGradsFirstStep) {
  const at::Tensor early = leaf({1, 2});
  const at::Tensor late = leaf({3, 4, 5});
  const at::Tensor alone = leaf({3, 4, 5});
  const FusedNovoGradOptions options = FusedNovoGradOptions(0.1).weight_decay(0.01);
  FusedNovoGrad both(std::vector<at::Tensor>{early, late}, options);
  FusedNovoGrad one(std::vector<at::Tensor>{alone}, options);
  give_gradient(early, {1, 1});
  both.step();
  for (int step = 0; step < 3; ++step) {
    give_gradient(early, {1, -1});
    for (const at::Tensor& each : {late, alone}) give_gradient(each, {0.5, 2.0 * step, -1});
    both.step();
    one.step();
  }
  EXPECT_TRUE(torch::equal(late, alone));
}

TEST(Defect, Number25AResultThatLeavesTheOutputsRangeIsFlagged) {
  struct Row {
    double value;
    double scale;
    at::ScalarType to;
    bool overflows;
  };
  for (const Row& row : {Row{70000, 1, at::kHalf, true}, Row{60000, 1, at::kHalf, false},
                         Row{1000, 100, at::kHalf, true}, Row{70000, 1, at::kBFloat16, false},
                         Row{3.4e38, 4, at::kBFloat16, true}}) {
    const at::Tensor in = torch::full({5}, row.value, at::kFloat);
    const at::Tensor out = torch::zeros({5}, row.to);
    at::Tensor found = torch::zeros({1}, at::kInt);
    multi_tensor_scale({in}, {out}, row.scale, found);
    EXPECT_EQ(found.item<int>() != 0, row.overflows) << row.value << " " << row.to;
  }
}

}  // namespace
}  // namespace mezzo::optim
