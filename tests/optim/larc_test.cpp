#include "mezzo/error.h"
#include "mezzo/optim.h"
#include "optim/trajectory.h"

namespace mezzo::optim {
namespace {

using namespace testing_support;

TEST(LARC, FollowsItsDefinitionFor100StepsAroundAnyOptimizer) {
  for (const bool clip : {true, false}) {
    for (const bool fused : {true, false}) {
      const auto params = make_parameters();
      std::unique_ptr<torch::optim::Optimizer> inner;
      if (fused) {
        inner = std::make_unique<FusedSGD>(params,
                                           FusedSGDOptions(0.05).weight_decay(0.1).momentum(0.9));
      } else {
        inner = std::make_unique<torch::optim::SGD>(
            params, torch::optim::SGDOptions(0.05).weight_decay(0.1).momentum(0.9));
      }
      LARC larc(*inner, {.trust_coefficient = 0.05, .clip = clip});
      std::vector<at::Tensor> reference;
      std::vector<at::Tensor> buffers(params.size());
      for (const at::Tensor& param : params)
        reference.push_back(param.detach().to(at::kDouble).clone());
      for (int step = 0; step < 100; ++step) {
        set_gradients(params, step);
        if (step < 3) params[1].mutable_grad().zero_();
        for (std::size_t i = 0; i < params.size(); ++i) {
          at::Tensor g = params[i].grad().to(at::kDouble);
          const double norm_p = reference[i].norm().item<double>();
          const double norm_g = g.norm().item<double>();
          double rate = 1;
          if (norm_p != 0 && norm_g != 0) {
            rate = 0.05 * norm_p / (norm_g + norm_p * 0.1 + 1e-8);
            if (clip) rate = std::min(rate / 0.05, 1.0);
          }
          g = (g + 0.1 * reference[i]) * rate;
          buffers[i] = buffers[i].defined() ? 0.9 * buffers[i] + g : g;
          reference[i] = reference[i] - 0.05 * buffers[i];
        }
        larc.step();
      }
      EXPECT_LT(distance(params, reference), 1e-5);
    }
  }
}

TEST(LARC, GivesTheGroupsTheirDecayBackAlsoAfterAnError) {
  const auto params = make_parameters();
  FusedAdam adam(params, FusedAdamOptions(0.1).weight_decay(0.3));
  LARC larc(adam);
  const auto decay = [&] {
    return static_cast<FusedAdamOptions&>(larc.param_groups()[0].options()).weight_decay();
  };
  set_gradients(params, 0);
  larc.step();
  EXPECT_EQ(decay(), 0.3);
  params[0].mutable_grad() = torch::zeros({17, 33}).to_sparse();
  EXPECT_THROW(larc.step(), Error);
  EXPECT_EQ(decay(), 0.3);
  larc.zero_grad();
  EXPECT_FALSE(params[0].grad().defined());
  EXPECT_EQ(&larc.inner(), &adam);
}

TEST(LARC, TakesRateAndDecayOfEachGroupAndMixturesOfTypes) {
  const std::vector<at::ScalarType> types{at::kFloat, at::kHalf, at::kDouble, at::kBFloat16};
  std::vector<at::Tensor> params, reference;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (std::size_t g = 0; g < types.size(); ++g) {
    params.push_back(torch::rand({50}).add(0.5).to(types[g]).requires_grad_(true));
    params.back().mutable_grad() = torch::rand({50}).to(types[g]);
    groups.emplace_back(std::vector<at::Tensor>{params.back()},
                        std::make_unique<FusedSGDOptions>(
                            FusedSGDOptions(0.1 * double(g + 1)).weight_decay(0.2 * double(g))));
  }
  const auto expected = [&](std::size_t g) {
    const at::Tensor p = params[g].detach().to(at::kDouble);
    const at::Tensor grad = params[g].grad().to(at::kDouble);
    const double decay = 0.2 * double(g);
    const double lr = 0.1 * double(g + 1);
    const double norm = p.norm().item<double>();
    const double rate = 0.02 * norm / (grad.norm().item<double>() + norm * decay + 1e-8);
    return p - lr * std::min(rate / lr, 1.0) * (grad + decay * p);
  };
  for (std::size_t g = 0; g < types.size(); ++g) reference.push_back(expected(g));
  FusedSGD sgd(groups, FusedSGDOptions(1));
  LARC(sgd).step();
  for (std::size_t g = 0; g < types.size(); ++g) {
    const double tolerance = types[g] == at::kBFloat16 ? 0x1p-7
                             : types[g] == at::kHalf   ? 0x1p-10
                                                       : 1e-6;
    EXPECT_LT(distance({params[g]}, {reference[g]}), tolerance) << types[g];
  }
}

TEST(LARC, FindsGradientsThatDoNotFitBeforeItChangesAny) {
  const auto params = make_parameters();
  FusedSGD sgd(params, FusedSGDOptions(0.1));
  LARC larc(sgd);
  const std::vector<at::Tensor> wrong{torch::zeros({8, 3}), torch::zeros({8, 3, 3, 3}).to_sparse(),
                                      torch::zeros({8, 3, 3, 3}, at::kInt)};
  for (const at::Tensor& grad : wrong) {
    set_gradients(params, 0);
    params[4].mutable_grad() = grad;
    const at::Tensor before = params[0].grad().clone();
    try {
      larc.step();
      ADD_FAILURE() << grad.sizes();
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("the gradient of parameter 4 of group 0"));
    }
    EXPECT_TRUE(torch::equal(params[0].grad(), before));
  }
}

TEST(LARC, FindsOptionsThatAreOutOfRangeBeforeItChangesAnyGradient) {
  const auto params = make_parameters();
  FusedSGD fused(params, FusedSGDOptions(0.1));
  torch::optim::SGD plain(params, torch::optim::SGDOptions(0.1));
  static_cast<FusedSGDOptions&>(fused.param_groups()[0].options()).momentum(-1);
  plain.param_groups()[0].options().set_lr(-1);
  for (torch::optim::Optimizer* inner : std::vector<torch::optim::Optimizer*>{&fused, &plain}) {
    set_gradients(params, 0);
    const at::Tensor before = params[0].grad().clone();
    EXPECT_THROW(LARC(*inner).step(), ConfigError);
    EXPECT_TRUE(torch::equal(params[0].grad(), before));
  }
}

TEST(LARC, FollowsItsDefinitionAroundAdamAndRMSprop) {
  for (const bool adam : {true, false}) {
    const auto params = make_parameters();
    const auto others = make_parameters();
    const auto make = [adam](const std::vector<at::Tensor>& of, double decay) {
      std::unique_ptr<torch::optim::Optimizer> made;
      if (adam) {
        made = std::make_unique<torch::optim::Adam>(
            of, torch::optim::AdamOptions(0.01).weight_decay(decay));
      } else {
        made = std::make_unique<torch::optim::RMSprop>(
            of, torch::optim::RMSpropOptions(0.01).weight_decay(decay));
      }
      return made;
    };
    const auto inner = make(params, 0.1);
    const auto reference = make(others, 0);
    LARC larc(*inner);
    for (int step = 0; step < 20; ++step) {
      set_gradients(params, step);
      set_gradients(others, step);
      for (const at::Tensor& other : others) {
        if (other.numel() == 0) continue;
        const at::Tensor p = other.detach().to(at::kDouble);
        const at::Tensor g = other.grad().to(at::kDouble);
        const double norm = p.norm().item<double>();
        const double rate = 0.02 * norm / (g.norm().item<double>() + norm * 0.1 + 1e-8);
        other.mutable_grad() = ((g + 0.1 * p) * std::min(rate / 0.01, 1.0)).to(other.scalar_type());
      }
      larc.step();
      reference->step();
    }
    EXPECT_LT(distance(params, others), 1e-4) << adam;
  }
}

TEST(LARC, AtARateOfZeroNothingMoves) {
  const auto params = make_parameters();
  FusedSGD sgd(params, FusedSGDOptions(0));
  LARC larc(sgd, {.trust_coefficient = 0});
  set_gradients(params, 0);
  const auto before = values(params);
  larc.step();
  EXPECT_TRUE(identical(params, before));
}

TEST(LARC, OptionsOutOfRangeAreErrors) {
  torch::optim::LBFGS lbfgs(make_parameters());
  EXPECT_THROW(LARC{lbfgs}, ConfigError);
  FusedSGD sgd(make_parameters(), FusedSGDOptions(0.1));
  EXPECT_THROW(LARC(sgd, {.trust_coefficient = -1}), ConfigError);
  EXPECT_THROW(LARC(sgd, {.eps = -1}), ConfigError);
}

}  // namespace
}  // namespace mezzo::optim
