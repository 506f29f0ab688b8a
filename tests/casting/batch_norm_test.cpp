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

}  // namespace
}  // namespace mezzo::amp
