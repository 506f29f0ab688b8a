// LAMB, NovoGrad and Adagrad against their papers' definitions, written with double tensors.
#include "mezzo/error.h"
#include "mezzo/hardware.h"
#include "mezzo/optim.h"
#include "optim/trajectory.h"

namespace mezzo::optim {
namespace {

using namespace testing_support;

using Advance =
    std::function<void(std::size_t i, int step, at::Tensor& param, const at::Tensor& grad)>;

// 100 steps of ours and of a definition that moves one double tensor at a time.
void expect_definition(FusedOptimizer& ours, const std::vector<at::Tensor>& params,
                       double max_grad_norm, const Advance& advance) {
  std::vector<at::Tensor> reference;
  for (const at::Tensor& param : params)
    reference.push_back(param.detach().to(at::kDouble).clone());
  for (int step = 1; step <= 100; ++step) {
    set_gradients(params, step);
    double squares = 0;
    for (const at::Tensor& param : params) {
      squares += param.grad().to(at::kDouble).pow(2).sum().item<double>();
    }
    const double norm = std::sqrt(squares);
    const double factor =
        max_grad_norm > 0 && norm > max_grad_norm ? max_grad_norm / (norm + 1e-6) : 1;
    for (std::size_t i = 0; i < params.size(); ++i) {
      advance(i, step, reference[i], params[i].grad().to(at::kDouble) * factor);
    }
    ours.step();
  }
  EXPECT_LT(distance(params, reference), 2e-5);
}

double norm_of(const at::Tensor& tensor) {
  return tensor.norm().item<double>();
}

struct Moments {
  std::vector<at::Tensor> first, second;
  explicit Moments(const std::vector<at::Tensor>& params) {
    for (const at::Tensor& param : params) {
      first.push_back(torch::zeros_like(param.detach(), at::kDouble));
      second.push_back(torch::zeros_like(param.detach(), at::kDouble));
    }
  }
};

TEST(FusedLAMB, FollowsItsDefinitionFor100StepsInEveryKernelSet) {
  const std::vector<FusedLAMBOptions> variants{
      FusedLAMBOptions(0.01), FusedLAMBOptions(0.01).weight_decay(0),
      FusedLAMBOptions(0.01).weight_decay(0).use_nvlamb(true).max_grad_norm(0),
      FusedLAMBOptions(0.01).adam_w_mode(false).weight_decay(0.1),
      FusedLAMBOptions(0.01).bias_correction(false).grad_averaging(false).max_grad_norm(0.1)};
  for (const std::string& set : kernel_sets()) {
    set_kernel_set(set);
    for (const FusedLAMBOptions& options : variants) {
      const auto params = make_parameters();
      FusedLAMB lamb(params, options);
      Moments moments(params);
      const auto [beta1, beta2] = options.betas();
      const auto advance = [&](std::size_t i, int step, at::Tensor& p, at::Tensor g) {
        const double decay = options.weight_decay();
        if (!options.adam_w_mode()) g = g + decay * p;
        moments.first[i] =
            beta1 * moments.first[i] + (options.grad_averaging() ? 1 - beta1 : 1) * g;
        moments.second[i] = beta2 * moments.second[i] + (1 - beta2) * g * g;
        const double bias1 = options.bias_correction() ? 1 - std::pow(beta1, step) : 1;
        const double bias2 = options.bias_correction() ? 1 - std::pow(beta2, step) : 1;
        at::Tensor update =
            moments.first[i] / bias1 / ((moments.second[i] / bias2).sqrt() + options.eps());
        if (options.adam_w_mode()) update = update + decay * p;
        double rate = options.lr();
        const bool adapts = decay != 0 || options.use_nvlamb();
        if (adapts && norm_of(p) != 0 && norm_of(update) != 0) rate *= norm_of(p) / norm_of(update);
        p = p - rate * update;
      };
      expect_definition(lamb, params, options.max_grad_norm(), advance);
    }
  }
  set_kernel_set(kernel_sets().back());
}

TEST(FusedLAMB, TheBoundOfTheNormIsEachGroupsOwnAndTheNormIsOfAllGroups) {
  const at::Tensor a = torch::ones({4}).requires_grad_(true);
  const at::Tensor b = torch::ones({4}).requires_grad_(true);
  a.mutable_grad() = torch::full({4}, 3.0);
  b.mutable_grad() = torch::full({4}, 4.0);  // the norm of both is 10
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{a},
                      std::make_unique<FusedLAMBOptions>(FusedLAMBOptions(0.1).max_grad_norm(0)));
  groups.emplace_back(std::vector{b},
                      std::make_unique<FusedLAMBOptions>(FusedLAMBOptions(0.1).max_grad_norm(5)));
  FusedLAMB lamb(groups);
  lamb.step();
  const auto moment = [&](const at::Tensor& param) {
    const auto& state = *lamb.state().at(param.unsafeGetTensorImpl());
    return static_cast<const torch::optim::AdamParamState&>(state).exp_avg()[0].item<double>();
  };
  EXPECT_NEAR(moment(a), 0.1 * 3, 1e-6);
  EXPECT_NEAR(moment(b), 0.1 * 4 * 0.5, 1e-6);
  EXPECT_TRUE((b.grad() == 4.0).all().item<bool>()) << "gradients are left alone";
}

TEST(FusedNovoGrad, FollowsItsDefinitionFor100StepsInEveryKernelSet) {
  const std::vector<FusedNovoGradOptions> variants{
      FusedNovoGradOptions(0.01).betas({0.95, 0.98}),
      FusedNovoGradOptions(0.01).betas({0.95, 0.98}).norm_type(0).weight_decay(0.1),
      FusedNovoGradOptions(0.01).reg_inside_moment(true).weight_decay(0.1).grad_averaging(false),
      FusedNovoGradOptions(0.01).init_zero(true).bias_correction(false).eps(1e-3),
      FusedNovoGradOptions(0.01).weight_decay(0.1).max_grad_norm(0.5)};
  for (const std::string& set : kernel_sets()) {
    set_kernel_set(set);
    for (const FusedNovoGradOptions& options : variants) {
      const auto params = make_parameters();
      FusedNovoGrad novograd(params, options);
      Moments moments(params);
      std::vector<double> norms(params.size(), -1);
      const auto [beta1, beta2] = options.betas();
      const auto advance = [&](std::size_t i, int step, at::Tensor& p, const at::Tensor& g) {
        if (p.numel() == 0) return;
        const bool two = options.norm_type() == 2;
        const double now = two ? norm_of(g) : g.abs().max().item<double>();
        const double before = norms[i] >= 0 ? norms[i] : options.init_zero() ? 0 : now;
        norms[i] = two ? std::sqrt(beta2 * before * before + (1 - beta2) * now * now)
                       : beta2 * before + (1 - beta2) * now;
        const double bias1 = options.bias_correction() ? 1 - std::pow(beta1, step) : 1;
        const double bias2 = options.bias_correction() ? std::sqrt(1 - std::pow(beta2, step)) : 1;
        const double denominator = norms[i] / bias2 + options.eps();
        const double beta3 = options.grad_averaging() ? 1 - beta1 : 1;
        const double decay = options.weight_decay();
        at::Tensor& m = moments.first[i];
        if (options.reg_inside_moment()) {
          m = beta1 * m + beta3 * (g / denominator + decay * p);
          p = p - options.lr() * m / bias1;
        } else {
          m = beta1 * m + beta3 * g;
          p = p - options.lr() * (m / bias1 / denominator + decay * p);
        }
      };
      expect_definition(novograd, params, options.max_grad_norm(), advance);
    }
  }
  set_kernel_set(kernel_sets().back());
}

TEST(FusedNovoGrad, ParametersMayJoinAndLeave) {
  const auto params = make_parameters();
  FusedNovoGrad novograd(params);
  for (int step = 0; step < 6; ++step) {
    set_gradients(params, step);
    if (step < 3) params[0].mutable_grad() = at::Tensor();
    if (step % 2 == 1) params[5].mutable_grad() = at::Tensor();
    novograd.step();
  }
  const auto count = [&](std::size_t i) {
    const auto& state = *novograd.state().at(params[i].unsafeGetTensorImpl());
    return static_cast<const torch::optim::AdamParamState&>(state).step();
  };
  EXPECT_EQ(count(0), 3);
  EXPECT_EQ(count(1), 6);
  EXPECT_EQ(count(5), 3);
}

TEST(FusedAdagrad, AgreesWithTorchOptimAndItsDecoupledDefinition) {
  for (const std::string& set : kernel_sets()) {
    set_kernel_set(set);
    const auto ours = make_parameters();
    const auto theirs = make_parameters();
    FusedAdagrad fused(
        ours,
        FusedAdagradOptions(0.01).weight_decay(0.1).lr_decay(0.01).initial_accumulator_value(0.5));
    torch::optim::Adagrad adagrad(theirs, torch::optim::AdagradOptions(0.01)
                                              .weight_decay(0.1)
                                              .lr_decay(0.01)
                                              .initial_accumulator_value(0.5));
    expect_same_path(fused, ours, adagrad, theirs, 5e-6);

    const auto params = make_parameters();
    FusedAdagrad decoupled(
        params,
        FusedAdagradOptions(0.01).weight_decay(0.1).adagrad_w_mode(true).max_grad_norm(0.5));
    Moments sums(params);
    expect_definition(decoupled, params, 0.5,
                      [&](std::size_t i, int, at::Tensor& p, const at::Tensor& g) {
                        sums.first[i] = sums.first[i] + g * g;
                        p = p * (1 - 0.01 * 0.1) - 0.01 * g / (sums.first[i].sqrt() + 1e-10);
                      });
  }
  set_kernel_set(kernel_sets().back());
}

template <typename Optimizer, typename Options>
void expect_refused(const Options& options, const std::string& message) {
  try {
    Optimizer optimizer(make_parameters(), options);
    ADD_FAILURE() << message;
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(message));
  }
}

TEST(Definitions, OptionsOutOfRangeAreErrorsThatTellTheRange) {
  const std::string finite = "; expected a finite number of at least 0";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_refused<FusedSGD>(FusedSGDOptions(-1), "lr is -1" + finite);
  expect_refused<FusedSGD>(FusedSGDOptions(1).momentum(nan), "momentum is nan" + finite);
  expect_refused<FusedSGD>(FusedSGDOptions(1).dampening(nan),
                           "dampening is nan; expected a finite");
  expect_refused<FusedSGD>(FusedSGDOptions(1).nesterov(true), "expected momentum above 0");
  expect_refused<FusedAdagrad>(FusedAdagradOptions(1).lr_decay(-1), "lr_decay is -1" + finite);
  expect_refused<FusedAdagrad>(FusedAdagradOptions(1).eps(-1), "eps is -1" + finite);
  expect_refused<FusedAdagrad>(FusedAdagradOptions(1).initial_accumulator_value(-1),
                               "initial_accumulator_value is -1" + finite);
  expect_refused<FusedNovoGrad>(FusedNovoGradOptions(1).norm_type(1), "norm_type is 1; expected 2");
}

TEST(Definitions, OptionsOutOfRangeAreErrors) {
  const auto params = make_parameters();
  EXPECT_THROW(FusedLAMB(params, FusedLAMBOptions(-1)), ConfigError);
  EXPECT_THROW(FusedLAMB(params, FusedLAMBOptions(1).max_grad_norm(-1)), ConfigError);
  EXPECT_THROW(FusedLAMB(params, FusedLAMBOptions(1).betas({0.9, 1.0})), ConfigError);
  EXPECT_THROW(FusedNovoGrad(params, FusedNovoGradOptions(1).norm_type(1)), ConfigError);
  EXPECT_THROW(FusedNovoGrad(params, FusedNovoGradOptions(1).eps(-1)), ConfigError);
  EXPECT_THROW(FusedAdagrad(params, FusedAdagradOptions(-1)), ConfigError);
  EXPECT_THROW(FusedAdagrad(params, FusedAdagradOptions(1).weight_decay(-1)), ConfigError);
  EXPECT_THROW(FusedAdagrad(params, FusedAdagradOptions(1).max_grad_norm(-1)), ConfigError);
  EXPECT_THROW(FusedNovoGrad(params, FusedNovoGradOptions(1).max_grad_norm(-1)), ConfigError);
}

}  // namespace
}  // namespace mezzo::optim
