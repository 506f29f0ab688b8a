#include <gmock/gmock.h>

#include "amp/training.h"
#include "mezzo/error.h"

namespace mezzo::amp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Runs a statement at a level with a fresh network and optimizer.
struct MisusedTraining {
  explicit MisusedTraining(const std::string& level) : MisusedTraining(at_level(level)) {}
  explicit MisusedTraining(const Options& options)
      : sgd(net->parameters(), 0.1), handles(initialize(net, sgd, options)) {}
  Line net;
  torch::optim::SGD sgd;
  std::pair<Model<Line>, Optimizer> handles;
  Model<Line>& model = handles.first;
  Optimizer& optimizer = handles.second;
};

/// Something around a network, as parallel wrappers are.
struct Wrapper {
  Line net;
  Line& module() const { return const_cast<Line&>(net); }
};

TEST(Misuse, AHalfNetworkIsNamed) {
  Line net;
  net->to(at::kHalf);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  for (const std::string& level : kLevels) {
    EXPECT_THAT([&] { initialize(net, sgd, at_level(level)); },
                ThrowsMessage<ConfigError>(HasSubstr("'line.weight'")));
  }
  TinyNet buffers;
  buffers->norm->running_mean.set_data(buffers->norm->running_mean.to(at::kHalf));
  EXPECT_THAT([&] { initialize(buffers, at_level("O1")); },
              ThrowsMessage<ConfigError>(HasSubstr("'norm.running_mean'")));
}

TEST(Misuse, AWrappedNetworkIsRefused) {
  MisusedTraining training("O1");
  Line other;
  torch::optim::SGD sgd(other->parameters(), 0.1);
  EXPECT_THAT([&] { initialize(training.model, sgd); },
              ThrowsMessage<ConfigError>(HasSubstr("wrapped already")));
  EXPECT_THROW(initialize(training.model), ConfigError);
  EXPECT_THROW(initialize(Wrapper{}, sgd), ConfigError);
}

TEST(Misuse, ASecondInitializeIsRefusedUntilTheHandlesAreGone) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  torch::optim::SGD other(net->parameters(), 0.1);
  for (const char* level : {"O0", "O1", "O2", "O3", "O5"}) {
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const Model<Line> copy = model;
    for (const char* again : {"O0", "O2"}) {
      EXPECT_THAT([&] { initialize(net, other, at_level(again)); },
                  ThrowsMessage<ConfigError>(HasSubstr("initialized already")));
    }
    Line second;
    torch::optim::SGD both({net->line->weight, second->line->weight}, 0.1);
    EXPECT_THROW(initialize(net, at_level("O0")), ConfigError);
  }
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  EXPECT_EQ(net->line->weight.scalar_type(), at::kHalf);
}

TEST(Misuse, AnOptimizerOfOtherParametersIsRefused) {
  Line net;
  Line other;
  torch::optim::SGD sgd(other->parameters(), 0.1);
  EXPECT_THAT([&] { initialize(net, sgd, at_level("O2")); },
              ThrowsMessage<ConfigError>(HasSubstr("owns no parameter of the networks")));
  EXPECT_EQ(net->line->weight.scalar_type(), at::kFloat);
  torch::optim::SGD mixed({net->line->weight, other->line->weight}, 0.1);
  EXPECT_NO_THROW(initialize(net, mixed, at_level("O2")));
}

TEST(Misuse, EmptyHandlesAndDuplicatesAreRefused) {
  Line empty = nullptr;
  EXPECT_THROW(initialize(empty, at_level("O1")), ConfigError);
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_THROW(initialize(std::tie(net, net), sgd, at_level("O1")), ConfigError);
  EXPECT_THROW(initialize(net, std::tie(sgd, sgd), at_level("O1")), ConfigError);
}

TEST(Misuse, ALossThatIsNoScalarIsRefused) {
  MisusedTraining training("O1");
  EXPECT_THAT(
      [&] {
        auto scaled = scale_loss(training.model(torch::ones({2, 3})), training.optimizer);
      },
      ThrowsMessage<ConfigError>(HasSubstr("[2, 1]")));
  EXPECT_THROW(auto scaled = scale_loss(at::Tensor(), training.optimizer), ConfigError);
  EXPECT_THROW(auto scaled = scale_loss(torch::ones({}, at::kLong), training.optimizer),
               ConfigError);
}

TEST(Misuse, ALossIdOutOfRangeIsRefused) {
  MisusedTraining training("O1");
  for (const int id : {-1, 1, 100}) {
    EXPECT_THAT(
        [&] {
          auto scaled = scale_loss(training.model(torch::ones({1, 3})).sum(), training.optimizer,
                                   {.loss_id = id});
        },
        ThrowsMessage<ConfigError>(HasSubstr("num_losses")));
    EXPECT_THROW(training.optimizer.loss_scale(id), ConfigError);
    EXPECT_THROW(training.optimizer.set_loss_scale(2, id), ConfigError);
  }
  EXPECT_THROW(training.optimizer.set_loss_scale(-2), ConfigError);
}

TEST(Misuse, APlainBackwardIsAnErrorWhereMastersWouldMissIt) {
  for (const std::string& level : kLevels) {
    MisusedTraining training(level);
    training.model(torch::ones({1, 3})).sum().backward();
    if (level == "O2" || level == "O5") {
      EXPECT_THAT([&] { training.optimizer.step(); },
                  ThrowsMessage<Error>(AllOf(HasSubstr("'line.weight'"), HasSubstr("scale_loss"))))
          << level;
      training.optimizer.zero_grad();
      scale_loss(training.model(torch::ones({1, 3})).sum(), training.optimizer).backward();
    }
    EXPECT_TRUE(training.optimizer.step().applied()) << level;
  }
}

TEST(Misuse, NestedScopesOnOneOptimizerAreRefused) {
  MisusedTraining training("O1");
  ScaledLoss outer = scale_loss(training.model(torch::ones({1, 3})).sum(), training.optimizer);
  EXPECT_THROW(
      auto inner = scale_loss(training.model(torch::ones({1, 3})).sum(), training.optimizer),
      Error);
  EXPECT_THROW(training.optimizer.step(), Error);
  outer.backward();
  outer.close();
  EXPECT_TRUE(training.optimizer.step().applied());
}

TEST(Misuse, StepWhileGradientsAreScaledIsRefused) {
  MisusedTraining training("O2");
  scale_loss(training.model(torch::ones({1, 3})).sum(), training.optimizer, {.delay_unscale = true})
      .backward();
  EXPECT_THAT([&] { training.optimizer.step(); }, ThrowsMessage<Error>(HasSubstr("delay_unscale")));
}

TEST(Misuse, TheSameOptimizerTwiceForOneLossIsRefused) {
  MisusedTraining training("O1");
  Optimizer& one = training.optimizer;
  EXPECT_THROW(auto scaled = scale_loss(training.model(torch::ones({1, 3})).sum(), {one, one}),
               ConfigError);
}

}  // namespace
}  // namespace mezzo::amp
