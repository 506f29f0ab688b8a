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

TEST(LARC, OptionsOutOfRangeAreErrors) {
  FusedSGD sgd(make_parameters(), FusedSGDOptions(0.1));
  EXPECT_THROW(LARC(sgd, {.trust_coefficient = -1}), ConfigError);
  EXPECT_THROW(LARC(sgd, {.eps = -1}), ConfigError);
}

}  // namespace
}  // namespace mezzo::optim
