#include "mezzo/error.h"
#include "mezzo/hardware.h"
#include "mezzo/optim.h"
#include "optim/trajectory.h"

namespace mezzo::optim {
namespace {

using namespace testing_support;

struct SgdCase {
  const char* name;
  double momentum, dampening, weight_decay;
  bool nesterov;
};
constexpr SgdCase kSgdPaths[] = {{"Plain", 0, 0, 0, false},
                                 {"WeightDecay", 0, 0, 0.1, false},
                                 {"Momentum", 0.9, 0, 0, false},
                                 {"Dampening", 0.9, 0.5, 0.01, false},
                                 {"Nesterov", 0.9, 0, 0.01, true}};

class SgdPath : public testing::TestWithParam<SgdCase> {};
INSTANTIATE_TEST_SUITE_P(Optim, SgdPath, testing::ValuesIn(kSgdPaths),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(SgdPath, AgreesWithTorchOptimFor100StepsInEveryKernelSet) {
  const SgdCase& c = GetParam();
  for (const std::string& set : kernel_sets()) {
    set_kernel_set(set);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const auto ours = make_parameters(dtype);
      const auto theirs = make_parameters(dtype);
      FusedSGD fused(ours, FusedSGDOptions(0.01)
                               .momentum(c.momentum)
                               .dampening(c.dampening)
                               .weight_decay(c.weight_decay)
                               .nesterov(c.nesterov));
      torch::optim::SGD sgd(theirs, torch::optim::SGDOptions(0.01)
                                        .momentum(c.momentum)
                                        .dampening(c.dampening)
                                        .weight_decay(c.weight_decay)
                                        .nesterov(c.nesterov));
      expect_same_path(fused, ours, sgd, theirs, dtype == at::kFloat ? 2e-6 : 1e-13);
    }
  }
  set_kernel_set(kernel_sets().back());
}

TEST(FusedSGD, EachParameterHasItsOwnFirstStep) {
  const auto ours = make_parameters();
  const auto theirs = make_parameters();
  FusedSGD fused(ours, FusedSGDOptions(0.01).momentum(0.9).dampening(0.5));
  torch::optim::SGD sgd(theirs, torch::optim::SGDOptions(0.01).momentum(0.9).dampening(0.5));
  for (int step = 0; step < 12; ++step) {
    for (const auto& list : {ours, theirs}) {
      set_gradients(list, step);
      if (step < 5) list[0].mutable_grad() = at::Tensor();
      if (step < 8) list.back().mutable_grad() = at::Tensor();
    }
    fused.step();
    sgd.step();
  }
  EXPECT_LT(distance(ours, theirs), 2e-6);
}

TEST(FusedSGD, DecayAfterMomentumAndClippingFollowTheirDefinition) {
  const auto params = make_parameters();
  FusedSGD sgd(
      params,
      FusedSGDOptions(0.01).momentum(0.9).weight_decay(0.1).wd_after_momentum(true).max_grad_norm(
          0.3));
  std::vector<at::Tensor> reference;
  std::vector<at::Tensor> buffers(params.size());
  for (const at::Tensor& param : params)
    reference.push_back(param.detach().to(at::kDouble).clone());
  for (int step = 0; step < 100; ++step) {
    set_gradients(params, step);
    double squares = 0;
    for (const at::Tensor& param : params) {
      squares += param.grad().to(at::kDouble).pow(2).sum().item<double>();
    }
    const double factor = std::sqrt(squares) > 0.3 ? 0.3 / (std::sqrt(squares) + 1e-6) : 1;
    for (std::size_t i = 0; i < params.size(); ++i) {
      const at::Tensor d = params[i].grad().to(at::kDouble) * factor;
      buffers[i] = buffers[i].defined() ? 0.9 * buffers[i] + d : d;
      reference[i] = reference[i] - 0.01 * (buffers[i] + 0.1 * reference[i]);
    }
    sgd.step();
  }
  EXPECT_LT(distance(params, reference), 2e-6);
}

TEST(FusedSGD, OptionsThatContradictEachOtherAreErrors) {
  const auto params = make_parameters();
  EXPECT_THROW(FusedSGD(params, FusedSGDOptions(-0.1)), ConfigError);
  EXPECT_THROW(FusedSGD(params, FusedSGDOptions(0.1).momentum(-0.9)), ConfigError);
  EXPECT_THROW(FusedSGD(params, FusedSGDOptions(0.1).weight_decay(-1)), ConfigError);
  EXPECT_THROW(FusedSGD(params, FusedSGDOptions(0.1).nesterov(true)), ConfigError);
  EXPECT_THROW(FusedSGD(params, FusedSGDOptions(0.1).momentum(0.9).dampening(0.1).nesterov(true)),
               ConfigError);
}

}  // namespace
}  // namespace mezzo::optim
