// The public names of insight, used as a program would.
#include <gtest/gtest.h>
#include <mezzo/mezzo.h>
#include <torch/torch.h>

namespace amp = mezzo::amp;
namespace insight = mezzo::insight;

namespace {

TEST(InsightNames, ASkippedStepIsExplained) {
  torch::nn::Linear first(4, 4), second(4, 2);
  torch::nn::Sequential net(first, second);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = "O1", .loss_scale = 1048576.0, .verbosity = 0});
  const auto x = torch::ones({3, 4});
  std::function<at::Tensor()> loss = [&, &model = model] {
    return model.call([&](torch::nn::SequentialImpl& bare) { return bare.forward(x); }).sum();
  };
  amp::scale_loss(loss(), optimizer).backward();
  ASSERT_TRUE(optimizer.step().skipped());
  const insight::Explanation why = insight::explain_overflow(model, optimizer, loss);
  EXPECT_TRUE(why.reproduced);
  ASSERT_TRUE(why.first.has_value());
  const insight::Operator& op = *why.first;
  // The loss scale overflows where the gradient of the output is cast.
  EXPECT_EQ(op.name, "to");
  EXPECT_EQ(op.module, "after 1");
  EXPECT_TRUE(op.backward);
  ASSERT_FALSE(op.inputs.empty());
  const insight::TensorRange& range = op.inputs.front();
  EXPECT_TRUE(at::isFloatingType(range.dtype));
  EXPECT_FALSE(range.sizes.empty());
  EXPECT_GE(range.max, range.min);
  EXPECT_GT(range.smallest, 0);
  EXPECT_EQ(range.nans + range.infs, 0);
  EXPECT_GT(op.output.infs, 0);
  EXPECT_EQ(why.cause, insight::Cause::kGradientOverflow);
  EXPECT_FALSE(why.parameter.empty());
  EXPECT_EQ(why.rank, 0);
  EXPECT_FALSE(why.fails_in_float);
  ASSERT_FALSE(why.advice.empty());
  const insight::Advice& advice = why.advice.front();
  EXPECT_TRUE(advice.tried);
  ASSERT_TRUE(advice.loss_scale.has_value());
  EXPECT_LT(*advice.loss_scale, 1048576);
  EXPECT_FALSE(advice.text.empty());
  EXPECT_TRUE(advice.keep_float.empty());
  EXPECT_FALSE(advice.policy.has_value());
  EXPECT_FALSE(why.to_text().empty());
  EXPECT_EQ(why.to_json().front(), '{');
  for (const auto cause :
       {insight::Cause::kOverflow, insight::Cause::kLogOfZero, insight::Cause::kDivisionByZero,
        insight::Cause::kInvalid, insight::Cause::kBadInput, insight::Cause::kExplodedWeights,
        insight::Cause::kUnknown})
    EXPECT_FALSE(insight::to_string(cause).empty());
}

TEST(InsightNames, TuplesOfModelsAndOptimizersGoInAsTheyCame) {
  torch::nn::Linear net_d(4, 2), net_g(4, 2);
  torch::optim::SGD opt_d(net_d->parameters(), 0.1), opt_g(net_g->parameters(), 0.1);
  auto [models, optimizers] = amp::initialize(std::tie(net_d, net_g), std::tie(opt_d, opt_g),
                                              {.opt_level = "O2", .num_losses = 2, .verbosity = 0});
  auto& [d, g] = models;
  const auto x = torch::ones({3, 4});
  const auto loss = [&, &g = g] { return g(x).sum(); };
  EXPECT_TRUE(insight::explain_overflow(models, optimizers, loss, 1).reproduced);
  EXPECT_TRUE(
      insight::explain_overflow(g, std::get<1>(optimizers), loss, /*loss_id=*/1).reproduced);
}

}  // namespace
