// Seeded faults that need a loop of their own: several networks and losses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "insight/gallery.h"

namespace mezzo::insight {
namespace {

/// Generator and discriminator with the three losses of DCGAN; the logarithm of the last one is
/// taken by hand, of one minus a probability, or together with what makes the probability.
struct ThreeLosses {
  explicit ThreeLosses(bool by_hand) : taken_by_hand(by_hand) {
    const torch::NoGradGuard no_grad;
    critic->head->weight.fill_(4);  // sure of itself: 8 * 4 * 1 = 32
    auto [models, optimizers] = amp::initialize(
        std::tie(generator, critic), std::tie(for_generator, for_critic),
        {.opt_level = "O1", .num_losses = 3, .init_loss_scale = 256, .verbosity = 0});
    all = std::move(models);
    both = std::move(optimizers);
  }
  at::Tensor judged(const at::Tensor& x) { return std::get<1>(all)(x); }
  at::Tensor made() { return std::get<0>(all)(torch::ones({3, 4})).repeat({1, 2}); }
  at::Tensor real_loss() { return -torch::log_sigmoid(judged(torch::ones({3, 4}))).mean(); }
  at::Tensor fake_loss() { return -torch::log_sigmoid(-judged(made().detach())).mean(); }
  at::Tensor third_loss() {
    const at::Tensor logits = judged(made());
    return taken_by_hand ? (1 - logits.sigmoid()).log().mean() : torch::log_sigmoid(-logits).mean();
  }
  /// The steps of both networks; the generator's decides.
  amp::StepResult step() {
    auto& [of_generator, of_critic] = both;
    of_critic.zero_grad();
    amp::scale_loss(real_loss(), of_critic, {.loss_id = 0}).backward();
    amp::scale_loss(fake_loss(), of_critic, {.loss_id = 1}).backward();
    const amp::StepResult critics = of_critic.step();
    EXPECT_TRUE(critics.applied());
    of_generator.zero_grad();
    amp::scale_loss(third_loss(), of_generator, {.loss_id = 2}).backward();
    return of_generator.step();
  }

  bool taken_by_hand;
  Sandwich generator, critic;
  torch::optim::SGD for_generator{generator->parameters(), 1e-4};
  torch::optim::SGD for_critic{critic->parameters(), 1e-4};
  std::tuple<amp::Model<Sandwich>, amp::Model<Sandwich>> all;
  std::tuple<amp::Optimizer, amp::Optimizer> both;
};

TEST(GalleryLoops, TheThirdLossOfThreeTakesTheLogarithmOfZero) {
  ThreeLosses gan(true);
  ASSERT_TRUE(gan.step().skipped());
  const Explanation why = explain_overflow(
      gan.all, std::get<0>(gan.both), [&] { return gan.third_loss(); }, 2);
  SCOPED_TRACE(why.to_text());
  ASSERT_TRUE(why.first.has_value());
  EXPECT_EQ(why.first->name, "log");
  EXPECT_EQ(why.first->module, "after head of network 1");
  EXPECT_EQ(why.loss_scale, 256);
  EXPECT_FALSE(why.first->backward) << "the loss itself is infinite before any gradient is";
  EXPECT_EQ(to_string(why.cause), "log_of_zero");
  EXPECT_TRUE(why.fails_in_float);
  EXPECT_THAT(why.advice.front().text, testing::HasSubstr("logsigmoid"));
  EXPECT_TRUE(ThreeLosses(false).step().applied()) << "logsigmoid, as the advice says";
}

TEST(GalleryLoops, WeightsThatAreLargeInAClosureOfLbfgsOverflowTheirOperator) {
  Sandwich net([](const at::Tensor& x) { return x / 1e4; });
  {
    const torch::NoGradGuard no_grad;
    net->stem->weight.fill_(12000);
  }
  torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(1e-3).max_iter(3));
  auto [model, optimizer] = amp::initialize(
      net, lbfgs, {.opt_level = "O1", .loss_scale = 1.0, .verbosity = 0, .check_finite = true});
  double input = 0.5;
  const auto loss = [&, &model = model] { return model(torch::full({3, 4}, input)).pow(2).mean(); };
  const auto step = [&, &optimizer = optimizer] {
    return optimizer.step([&] {
      optimizer.zero_grad();
      const at::Tensor value = loss();
      amp::scale_loss(value, optimizer).backward();
      return value;
    });
  };
  ASSERT_TRUE(step().applied());
  input = 6;
  ASSERT_TRUE(step().skipped());
  const Explanation why = explain_overflow(model, optimizer, loss);
  SCOPED_TRACE(why.to_text());
  ASSERT_TRUE(why.first.has_value());
  EXPECT_EQ(why.first->name, "addmm");
  EXPECT_EQ(why.first->module, "stem");
  EXPECT_EQ(to_string(why.cause), "overflow");
  EXPECT_FALSE(why.fails_in_float);
}

TEST(GalleryLoops, BadDataAreNamedWithTheirPlace) {
  Sandwich net{Step()};
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O1", .verbosity = 0});
  const auto loss = [&, &model = model] {
    at::Tensor image = torch::arange(12).to(at::kFloat).reshape({3, 4});
    image[1][2] = std::numeric_limits<float>::quiet_NaN();
    return model((image - 3) / 5).sum();
  };
  amp::scale_loss(loss(), optimizer).backward();
  ASSERT_TRUE(optimizer.step().skipped());
  const Explanation why = explain_overflow(model, optimizer, loss);
  EXPECT_EQ(to_string(why.cause), "bad_input");
  EXPECT_FALSE(why.first.has_value());
  EXPECT_THAT(why.advice.front().text,
              testing::HasSubstr("a tensor of shape [3, 4] holds 1 NaN and 0 infinities, the first "
                                 "at [1, 2]"));
}

}  // namespace
}  // namespace mezzo::insight
