// Optimizers that hold a network's low weights, and that `initialize` was not given.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <sstream>

#include "amp/training.h"
#include "mezzo/amp.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;

std::string error_in(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

template <typename Inner>
void expect_noticed(const std::string& level) {
  TinyNet net;
  auto model = initialize(net, at_level(level));
  Inner outside(net->parameters(), 0.1);
  const std::string said = error_in([&] {
    for (int step = 0; step < 5; ++step) {
      outside.zero_grad();
      loss_of(model).backward();
      outside.step();
    }
  });
  EXPECT_THAT(said, HasSubstr("is trained by an optimizer that initialize was not given")) << level;
}

TEST(StrayTraining, AnOptimizerOfAllWeightsIsNoticed) {
  for (const std::string level : {"O2", "O5"}) {
    expect_noticed<torch::optim::SGD>(level);
    expect_noticed<torch::optim::Adam>(level);
    expect_noticed<torch::optim::RMSprop>(level);
  }
}

TEST(StrayTraining, AnOptimizerOfSomeWeightsBesideOneThatWasGivenIsNoticed) {
  for (const std::string level : {"O2", "O5"}) {
    TinyNet net;
    torch::optim::SGD given(net->first->parameters(), 0.1);
    torch::optim::Adam outside(net->second->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, given, at_level(level));
    const std::string said = error_in([&, &model = model, &optimizer = optimizer] {
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        outside.zero_grad();
        scale_loss(loss_of(model), optimizer).backward();
        optimizer.step();
        outside.step();
      }
    });
    EXPECT_THAT(said, HasSubstr("'second.weight' is trained by an optimizer")) << level;
  }
}

TEST(StrayTraining, AnOptimizerThatStepsByScaledGradientsIsSaidOnceAtO1) {
  TinyNet net;
  torch::optim::SGD given(net->first->parameters(), 0.1);
  torch::optim::SGD outside(net->second->parameters(), 0.1);
  auto [model, optimizer] =
      initialize(net, given, Options{.opt_level = "O1", .init_loss_scale = 4});
  Listener listener;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    outside.zero_grad();
    scale_loss(loss_of(model), optimizer).backward();
    optimizer.step();
    outside.step();
  }
  EXPECT_EQ(listener.count("'second.weight' is trained by an optimizer"), 1);
  EXPECT_EQ(listener.count("which nothing divides away"), 1);
}

TEST(StrayTraining, WeightsThatNobodyStepsAreNotSpokenOf) {
  TinyNet net;
  torch::optim::SGD given(net->first->parameters(), 0.1);
  auto [model, optimizer] =
      initialize(net, given, Options{.opt_level = "O1", .init_loss_scale = 1024});
  Listener listener;
  for (int step = 0; step < 5; ++step) {
    scale_loss(loss_of(model), optimizer).backward();
    optimizer.step();
  }
  EXPECT_EQ(listener.count("is trained by"), 0);
}

TEST(StrayTraining, LevelsWithoutMastersTrainThatWay) {
  for (const std::string level : {"O0", "O1", "O3", "O4"}) {
    TinyNet net;
    auto model = initialize(net, at_level(level));
    torch::optim::SGD outside(net->parameters(), 0.1);
    for (int step = 0; step < 5; ++step) {
      outside.zero_grad();
      loss_of(model).backward();
      EXPECT_NO_THROW(outside.step()) << level;
    }
  }
}

// Programs that do one half of it, or the other.
TEST(StrayTraining, GradientsAloneAndWritesAloneAreNoTraining) {
  for (const std::string level : {"O2", "O5"}) {
    TinyNet net;
    auto model = initialize(net, at_level(level));
    const auto look_at_gradients = [&] {
      net->zero_grad();
      loss_of(model).backward();
    };
    EXPECT_NO_THROW({
      for (int i = 0; i < 5; ++i) look_at_gradients();
    }) << level;
    net->zero_grad();
    const torch::NoGradGuard no_grad;
    EXPECT_NO_THROW({
      for (int i = 0; i < 5; ++i) {  // a teacher's average
        for (at::Tensor& weight : net->parameters()) weight.mul_(0.9);
        model(inputs());
      }
      for (int i = 0; i < 5; ++i) {  // the same past the version counter
        for (at::Tensor& weight : net->parameters()) weight.data().clamp_(-0.01 * i, 0.01 * i);
        const torch::AutoGradMode with_gradients(true);
        model(inputs());
      }
    }) << level;
  }
}

TEST(StrayTraining, ClippingAndLoadingAndAnEvaluationBetweenStepsAreNone) {
  for (const std::string level : {"O2", "O5"}) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    EXPECT_NO_THROW({
      for (int step = 0; step < 6; ++step) {
        optimizer.zero_grad();
        scale_loss(loss_of(model), optimizer).backward();
        optimizer.step();
        for (const at::Tensor& weight : net->parameters()) weight.data().clamp_(-0.05, 0.05);
        optimizer.invalidate_casts();
        load_model_state_dict(model, model_state_dict(model));
        model.eval();
        const torch::NoGradGuard no_grad;
        model(inputs());
        model.train();
      }
    }) << level;
  }
}

TEST(StrayTraining, ValuesThatAreLoadedBetweenStepsAreNone) {
  for (const std::string level : {"O2", "O5"}) {
    TinyNet net;
    torch::optim::SGD sgd(net->first->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    EXPECT_NO_THROW({
      for (int step = 0; step < 6; ++step) {
        scale_loss(loss_of(model), optimizer).backward();
        optimizer.step();
        auto values = model_state_dict(model);
        for (auto& item : values) item.value() = item.value() + 1;
        load_model_state_dict(model, values);
        std::stringstream file;
        torch::save(model, file);
        torch::load(model, file);
      }
    }) << level;
  }
}

TEST(StrayTraining, WeightsThatNoOptimizerHoldsAndFrozenOnesAreNone) {
  for (const std::string level : {"O2", "O5"}) {
    TinyNet net;
    torch::optim::SGD sgd(net->first->parameters(), 0.1);
    for (at::Tensor& frozen : net->norm->parameters()) frozen.requires_grad_(false);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    EXPECT_NO_THROW({
      for (int step = 0; step < 6; ++step) {
        optimizer.zero_grad();
        scale_loss(loss_of(model), optimizer).backward();
        optimizer.step();
      }
    }) << level;
  }
}

TEST(StrayTraining, AGroupThatIsAddedLaterIsNone) {
  for (const std::string level : {"O2", "O5"}) {
    TinyNet net;
    torch::optim::SGD sgd(net->first->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    EXPECT_NO_THROW({
      for (int step = 0; step < 8; ++step) {
        if (step == 2)
          optimizer.add_param_group(torch::optim::OptimizerParamGroup(net->second->parameters()));
        optimizer.zero_grad();
        scale_loss(loss_of(model), optimizer).backward();
        optimizer.step();
      }
    }) << level;
    EXPECT_EQ(optimizer.applied_steps(), 8);
  }
}

}  // namespace
}  // namespace mezzo::amp
