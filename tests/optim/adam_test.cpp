#include <limits>

#include "mezzo/error.h"
#include "mezzo/hardware.h"
#include "mezzo/optim.h"
#include "optim/trajectory.h"

namespace mezzo::optim {
namespace {

using namespace testing_support;

struct AdamCase {
  const char* name;
  bool decoupled;
  double weight_decay;
  bool amsgrad;
};
constexpr AdamCase kAdamPaths[] = {{"Adam", false, 0, false},
                                   {"AdamWithL2", false, 0.1, false},
                                   {"AdamW", true, 0.1, false},
                                   {"AdamAmsgrad", false, 0.01, true},
                                   {"AdamWAmsgrad", true, 0.01, true}};

class AdamPath : public testing::TestWithParam<AdamCase> {};
INSTANTIATE_TEST_SUITE_P(Optim, AdamPath, testing::ValuesIn(kAdamPaths),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(AdamPath, AgreesWithTorchOptimFor100StepsInEveryKernelSet) {
  const AdamCase& c = GetParam();
  for (const std::string& set : kernel_sets()) {
    set_kernel_set(set);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const auto ours = make_parameters(dtype);
      const auto theirs = make_parameters(dtype);
      FusedAdam fused(ours, FusedAdamOptions(0.01)
                                .weight_decay(c.weight_decay)
                                .amsgrad(c.amsgrad)
                                .adam_w_mode(c.decoupled));
      const double tolerance = dtype == at::kFloat ? 2e-5 : 1e-12;
      if (c.decoupled) {
        torch::optim::AdamW adam(
            theirs,
            torch::optim::AdamWOptions(0.01).weight_decay(c.weight_decay).amsgrad(c.amsgrad));
        expect_same_path(fused, ours, adam, theirs, tolerance);
      } else {
        torch::optim::Adam adam(
            theirs,
            torch::optim::AdamOptions(0.01).weight_decay(c.weight_decay).amsgrad(c.amsgrad));
        expect_same_path(fused, ours, adam, theirs, tolerance);
      }
    }
  }
  set_kernel_set(kernel_sets().back());
}

// The definition in double, for what torch::optim does not have.
struct ReferenceAdam {
  FusedAdamOptions options;
  std::vector<at::Tensor> params, m, v;
  int step = 0;

  ReferenceAdam(const std::vector<at::Tensor>& start, FusedAdamOptions given) : options(given) {
    for (const at::Tensor& param : start) {
      params.push_back(param.detach().to(at::kDouble).clone());
      m.push_back(torch::zeros_like(params.back()));
      v.push_back(torch::zeros_like(params.back()));
    }
  }
  void advance(const std::vector<at::Tensor>& grads) {
    const auto [beta1, beta2] = options.betas();
    ++step;
    double squares = 0;
    for (const at::Tensor& g : grads) squares += g.to(at::kDouble).pow(2).sum().item<double>();
    const double most = options.max_grad_norm();
    const double factor =
        most > 0 && std::sqrt(squares) > most ? most / (std::sqrt(squares) + 1e-6) : 1;
    const double bias1 = options.bias_correction() ? 1 - std::pow(beta1, step) : 1;
    const double bias2 = options.bias_correction() ? 1 - std::pow(beta2, step) : 1;
    for (std::size_t i = 0; i < params.size(); ++i) {
      const at::Tensor g = grads[i].to(at::kDouble) * factor;
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const at::Tensor second = v[i] / bias2;
      const at::Tensor denominator = options.eps_inside_sqrt() ? (second + options.eps()).sqrt()
                                                               : second.sqrt() + options.eps();
      params[i] = params[i] * (1 - options.lr() * options.weight_decay()) -
                  options.lr() * (m[i] / bias1) / denominator;
    }
  }
};

TEST(FusedAdam, AgreesWithTheDefinitionWhereTorchHasNothingToCompare) {
  const std::vector<FusedAdamOptions> variants{
      FusedAdamOptions(0.01).bias_correction(false),
      FusedAdamOptions(0.01).eps_inside_sqrt(true).eps(1e-4),
      FusedAdamOptions(0.01).max_grad_norm(0.5).weight_decay(0.1),
      FusedAdamOptions(0.01).betas({0.5, 0.9})};
  for (const FusedAdamOptions& options : variants) {
    const auto params = make_parameters();
    FusedAdam adam(params, options);
    ReferenceAdam reference(params, options);
    for (int step = 0; step < 100; ++step) {
      set_gradients(params, step);
      std::vector<at::Tensor> grads;
      for (const at::Tensor& param : params) grads.push_back(param.grad().clone());
      adam.step();
      reference.advance(grads);
    }
    EXPECT_LT(distance(params, reference.params), 2e-5);
  }
}

TEST(FusedAdam, KeepsFloatStateForHalfAndBFloat16Weights) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const auto params = make_parameters(dtype);
    const auto exact = make_parameters(dtype);
    FusedAdam adam(params, FusedAdamOptions(0.01));
    ReferenceAdam reference(exact, FusedAdamOptions(0.01));
    for (int step = 0; step < 10; ++step) {
      set_gradients(params, step);
      std::vector<at::Tensor> grads;
      for (const at::Tensor& param : params) grads.push_back(param.grad().clone());
      adam.step();
      reference.advance(grads);
    }
    EXPECT_LT(distance(params, reference.params), 10 * (dtype == at::kHalf ? 0x1p-11 : 0x1p-8));
    for (const auto& [key, state] : adam.state()) {
      EXPECT_EQ(static_cast<torch::optim::AdamParamState&>(*state).exp_avg().scalar_type(),
                at::kFloat);
    }
  }
}

TEST(FusedAdam, ParametersThatJoinLaterStartTheirOwnCount) {
  const auto ours = make_parameters();
  const auto theirs = make_parameters();
  FusedAdam fused(ours, FusedAdamOptions(0.01).adam_w_mode(false));
  torch::optim::Adam adam(theirs, torch::optim::AdamOptions(0.01));
  for (int step = 0; step < 20; ++step) {
    for (const auto& list : {ours, theirs}) {
      set_gradients(list, step);
      if (step < 7) list[1].mutable_grad() = at::Tensor();
      if (step % 2 == 0) list[4].mutable_grad() = at::Tensor();
    }
    fused.step();
    adam.step();
  }
  EXPECT_LT(distance(ours, theirs), 1e-5);
}

TEST(FusedAdam, GroupsHaveTheirOwnOptions) {
  const auto ours = make_parameters();
  const auto theirs = make_parameters();
  const auto groups = [](const std::vector<at::Tensor>& params, auto options) {
    std::vector<torch::optim::OptimizerParamGroup> result;
    result.emplace_back(std::vector<at::Tensor>{params[0], params[1], params[3]});
    result.emplace_back(std::vector<at::Tensor>{params[2], params[4], params[5]},
                        std::move(options));
    return result;
  };
  FusedAdam fused(groups(ours, std::make_unique<FusedAdamOptions>(
                                   FusedAdamOptions(0.1).betas({0.8, 0.9}).adam_w_mode(false))),
                  FusedAdamOptions(0.001).adam_w_mode(false));
  torch::optim::Adam adam(groups(theirs, std::make_unique<torch::optim::AdamOptions>(
                                             torch::optim::AdamOptions(0.1).betas({0.8, 0.9}))),
                          torch::optim::AdamOptions(0.001));
  expect_same_path(fused, ours, adam, theirs, 2e-5);
}

TEST(FusedAdam, SchedulersSetItsLearningRate) {
  const auto ours = make_parameters();
  const auto theirs = make_parameters();
  FusedAdam fused(ours, FusedAdamOptions(0.01).adam_w_mode(false));
  torch::optim::Adam adam(theirs, torch::optim::AdamOptions(0.01));
  torch::optim::StepLR ours_schedule(fused, 2, 0.5);
  torch::optim::StepLR theirs_schedule(adam, 2, 0.5);
  for (int step = 0; step < 10; ++step) {
    set_gradients(ours, step);
    set_gradients(theirs, step);
    fused.step();
    adam.step();
    ours_schedule.step();
    theirs_schedule.step();
  }
  EXPECT_LT(fused.param_groups()[0].options().get_lr(), 0.001);
  EXPECT_EQ(fused.param_groups()[0].options().get_lr(), adam.param_groups()[0].options().get_lr());
  EXPECT_LT(distance(ours, theirs), 1e-5);
}

struct BadOption {
  FusedAdamOptions options;
  const char* message;
};

TEST(FusedAdam, OptionsOutOfRangeAreErrorsThatTellTheRange) {
  const auto params = make_parameters();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<BadOption> cases{
      {FusedAdamOptions(-1), "lr is -1; expected a finite number of at least 0"},
      {FusedAdamOptions(nan), "lr is nan"},
      {FusedAdamOptions(1).eps(-1e-8), "eps is -1e-08"},
      {FusedAdamOptions(1).betas({1.0, 0.9}), "betas[0] is 1; expected at least 0 and below 1"},
      {FusedAdamOptions(1).betas({0.9, -0.1}), "betas[1] is -0.1"},
      {FusedAdamOptions(1).weight_decay(-1), "weight_decay is -1"},
      {FusedAdamOptions(1).max_grad_norm(-1), "max_grad_norm is -1"}};
  for (const BadOption& row : cases) {
    try {
      FusedAdam adam(params, row.options);
      ADD_FAILURE() << row.message;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(row.message));
    }
  }
  FusedAdam adam(params);
  adam.param_groups()[0].options().set_lr(-2);
  EXPECT_THROW(adam.step(), ConfigError);
  std::vector<torch::optim::OptimizerParamGroup> foreign;
  foreign.emplace_back(params, std::make_unique<torch::optim::SGDOptions>(0.1));
  EXPECT_THROW(FusedAdam(foreign, FusedAdamOptions()), ConfigError);
}

}  // namespace
}  // namespace mezzo::optim
