#include <gmock/gmock.h>
#include <torch/torch.h>

#include "mezzo/autocast.h"
#include "mezzo/policy.h"

namespace mezzo::amp {
namespace {

/// A policy that puts batch norm into another class, as MXNet's users do: the statistics must go on
/// being updated in place.
TEST(BatchNorm, UpdatesItsStatisticsInEveryClass) {
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({8, 4, 5, 5});
  for (const CastClass cast_class :
       {CastClass::kNeutral, CastClass::kLow, CastClass::kFloat, CastClass::kPromote}) {
    torch::nn::BatchNorm2d expected(4);
    expected(x);
    torch::nn::BatchNorm2d norm(4);
    const Autocast scope(Policy::defaults(at::kBFloat16).with("batch_norm", cast_class));
    const at::Tensor y = norm(x);
    EXPECT_EQ(y.scalar_type(), cast_class == CastClass::kLow ? at::kBFloat16 : at::kFloat);
    EXPECT_EQ(norm->running_mean.scalar_type(), at::kFloat);
    EXPECT_TRUE(torch::allclose(norm->running_mean, expected->running_mean, 1e-2, 1e-3));
    EXPECT_TRUE(torch::allclose(norm->running_var, expected->running_var, 1e-2, 1e-3));
  }
}

/// As conditional norms have them: scale and shift are products, the input is not.
TEST(BatchNorm, TakesEachOfItsTensorsInAnotherType) {
  torch::manual_seed(3);
  for (const at::ScalarType low : {at::kHalf, at::kBFloat16}) {
    for (const bool trains : {true, false}) {
      for (int mask = 0; mask < 32; ++mask) {
        torch::manual_seed(4);
        std::vector<at::Tensor> wide{torch::randn({8, 4, 5, 5}), torch::rand({4}) + 0.5,
                                     torch::randn({4}), torch::randn({4}), torch::rand({4}) + 0.5};
        std::vector<at::Tensor> mixed;
        for (int i = 0; i < 5; ++i) {
          wide[i] = wide[i].to(low).to(at::kFloat);
          mixed.push_back(wide[i].to((mask >> i) & 1 ? low : at::kFloat));
          if (i < 3) mixed[i].requires_grad_();
        }
        const auto norm = [&](const std::vector<at::Tensor>& x) {
          return torch::batch_norm(x[0], x[1], x[2], x[3], x[4], trains, 0.1, 1e-5, false);
        };
        const at::Tensor expected = norm(wide);
        at::Tensor y;
        {
          const Autocast scope(Policy::defaults(low));
          ASSERT_NO_THROW(y = norm(mixed)) << "tensors in 16 bits: " << mask;
        }
        EXPECT_EQ(y.scalar_type(), mixed[0].scalar_type()) << mask;
        EXPECT_TRUE(torch::allclose(y.to(at::kFloat), expected, 2e-2, 2e-2)) << mask;
        EXPECT_TRUE(torch::allclose(mixed[3].to(at::kFloat), wide[3], 2e-2, 2e-2)) << mask;
        EXPECT_TRUE(torch::allclose(mixed[4].to(at::kFloat), wide[4], 2e-2, 2e-2)) << mask;
        ASSERT_NO_THROW(y.sum().backward()) << mask;
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::amp
