#include "scaling/loss_scaler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace mezzo::scaling {
namespace {

at::Tensor flag(bool up) {
  return torch::full({}, up ? 1.0 : 0.0, at::kFloat);
}

TEST(LossScaler, MovesAsTheStateMachineSays) {
  const ScaleRules rules{.growth_interval = 2, .floor = 1, .ceiling = 64};
  LossScaler scaler(rules, 32);
  ScaleState state{32, 0, 0};
  for (const bool overflow : {false, false, false, true, true, false, true}) {
    scaler.update(flag(overflow));
    state = advance(state, overflow, rules);
    EXPECT_EQ(scaler.state(), state);
    EXPECT_EQ(scaler.multiply(torch::ones({})).item<double>(), state.scale);
    EXPECT_EQ(scaler.inverse().item<double>(), 1 / state.scale);
  }
}

TEST(LossScaler, MultipliesLowPrecisionInFloatAndKeepsDouble) {
  const LossScaler scaler({}, 65536);
  const at::Tensor half = scaler.multiply(torch::full({}, 100.0, at::kHalf));
  EXPECT_EQ(half.scalar_type(), at::kFloat);
  EXPECT_EQ(half.item<double>(), 6553600.0);
  EXPECT_EQ(scaler.multiply(torch::ones({}, at::kDouble)).scalar_type(), at::kDouble);
}

TEST(LossScaler, MultipliesAndDividesByOneNumberWhateverTheType) {
  const LossScaler scaler({.dynamic = false}, 1000.1);
  EXPECT_EQ(scaler.state().scale, 1000.1);
  const double used = scaler.multiply(torch::ones({}, at::kDouble)).item<double>();
  EXPECT_EQ(used, scaler.multiply(torch::ones({}, at::kFloat)).item<double>());
  EXPECT_NEAR(used * scaler.inverse().item<double>(), 1, 1e-15);
}

TEST(LossScaler, AnUpdateDoesNotDisturbGraphsThatWereScaledBefore) {
  LossScaler scaler({}, 4);
  const at::Tensor leaf = torch::ones({}, at::TensorOptions().requires_grad(true));
  const at::Tensor scaled = scaler.multiply(leaf * 3);
  scaler.update(flag(true));
  scaled.backward();
  EXPECT_EQ(leaf.grad().item<float>(), 12);
}

TEST(LossScaler, ARestoredStateContinues) {
  LossScaler scaler({.growth_interval = 10}, 4);
  scaler.set_state({1024, 9, 0});
  scaler.update(flag(false));
  EXPECT_EQ(scaler.state(), (ScaleState{2048, 0, 0}));
}

TEST(LossScaler, OnlyAStaticScaleOfOneIsOne) {
  EXPECT_TRUE(LossScaler({.dynamic = false}, 1).is_one());
  EXPECT_FALSE(LossScaler({.dynamic = false}, 2).is_one());
  EXPECT_FALSE(LossScaler({}, 1).is_one());
}

}  // namespace
}  // namespace mezzo::scaling
