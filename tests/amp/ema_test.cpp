// Moving averages of weights.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "amp/training.h"
#include "mezzo/amp.h"

namespace mezzo::amp {
namespace {

/// A parameter's value in float64, its master's if it has one.
at::Tensor exact(const Model<TinyNet>& model, const std::string& name) {
  return model_state_dict(model)[name].to(at::kDouble);
}

struct EmaAtALevel : testing::TestWithParam<std::string> {
  TinyNet net;
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
  std::pair<Model<TinyNet>, Optimizer> handles = initialize(net, sgd, options());
  Model<TinyNet>& model = handles.first;
  Optimizer& optimizer = handles.second;

  static Options options() {
    Options result = at_level(GetParam());
    result.loss_scale = "dynamic";
    return result;
  }
  bool step(double factor = 1) {
    optimizer.zero_grad();
    scale_loss(loss_of(model) * factor, optimizer).backward();
    return optimizer.step().applied();
  }
};
INSTANTIATE_TEST_SUITE_P(Levels, EmaAtALevel, testing::ValuesIn(kLevels));

TEST_P(EmaAtALevel, AveragesMastersAsFloat64Does) {
  for (const bool warmup : {false, true}) {
    Ema ema(model, 0.9, {.warmup = warmup});
    at::Tensor expected = exact(model, "first.weight");
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(step());
      ASSERT_TRUE(ema.update());
      const double decay = warmup ? std::min(0.9, (1.0 + i) / (10.0 + i)) : 0.9;
      expected = decay * expected + (1 - decay) * exact(model, "first.weight");
    }
    EXPECT_EQ(ema.updates(), 5);
    const at::Tensor average = ema.averages()["first.weight"];
    EXPECT_EQ(average.scalar_type(), at::kFloat);
    EXPECT_LT((average.to(at::kDouble) - expected).abs().max().item<double>(), 1e-6);
  }
}

TEST_P(EmaAtALevel, ASkippedStepDoesNotCount) {
  Ema ema(model, 0.5);
  ASSERT_TRUE(step());
  ASSERT_TRUE(ema.update());
  const at::Tensor before = ema.averages()["second.weight"].clone();
  ASSERT_FALSE(step(kInf));
  EXPECT_FALSE(ema.update());
  EXPECT_EQ(ema.updates(), 1);
  EXPECT_TRUE(torch::equal(ema.averages()["second.weight"], before));
}

TEST_P(EmaAtALevel, SwapsInAndOutToTheLastBit) {
  Ema ema(model, 0.5);
  ASSERT_TRUE(step());
  ema.update();
  ASSERT_TRUE(step());
  ema.update();
  const auto weights = values_of(*net);
  const auto masters = model_state_dict(model);
  model.eval();
  const at::Tensor trained = model(inputs()).detach();
  {
    const auto swapped = ema.swapped();
    EXPECT_TRUE(ema.is_applied());
    const auto low = net->first->weight.scalar_type();
    EXPECT_TRUE(torch::equal(net->first->weight, ema.averages()["first.weight"].to(low)));
    EXPECT_FALSE(torch::equal(model(inputs()), trained));
    EXPECT_THROW(ema.update(), Error);
    EXPECT_THROW(ema.apply(), Error);
  }
  EXPECT_THROW(ema.restore(), Error);
  EXPECT_TRUE(same_values(values_of(*net), weights));
  const auto now = model_state_dict(model);
  for (const auto& item : masters) EXPECT_TRUE(torch::equal(now[item.key()], item.value()));
  EXPECT_TRUE(torch::equal(model(inputs()), trained));
  model.train();
  EXPECT_TRUE(step());
}

TEST_P(EmaAtALevel, ResumesFromACheckpointToTheLastBit) {
  const std::string path = testing::TempDir() + "ema_" + GetParam() + ".safetensors";
  Ema ema(model, 0.9, {.warmup = true});
  ASSERT_TRUE(step());
  ema.update();
  save_checkpoint(path, model, optimizer, {.averages = {ema}});
  ASSERT_TRUE(step());
  ema.update();
  const at::Tensor expected = ema.averages()["first.weight"].clone();
  Ema other(model, 0.9, {.warmup = true});
  load_checkpoint(path, model, optimizer, {.averages = {other}});
  EXPECT_EQ(other.updates(), 1);
  ASSERT_TRUE(step());
  other.update();
  EXPECT_TRUE(torch::equal(other.averages()["first.weight"], expected));
}

TEST(Ema, RefusesWhatItCannotDo) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, at_level("O1"));
  EXPECT_THROW(Ema(model, 1.5), ConfigError);
  EXPECT_THROW(Ema(model, std::nan("")), ConfigError);
  const std::string path = testing::TempDir() + "without_ema.safetensors";
  save_checkpoint(path, model, optimizer);
  Ema ema(model, 0.9);
  EXPECT_THROW(load_checkpoint(path, model, optimizer, {.averages = {ema}}), Error);
  ema.apply();
  EXPECT_THROW(save_checkpoint(path, model, optimizer, {.averages = {ema}}), Error);
}

}  // namespace
}  // namespace mezzo::amp
