// Unannounced changes of weights and gradients by programs: training is float's, or an error says
// why it is not.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "amp/training.h"
#include "mezzo/amp.h"

namespace mezzo::amp {
namespace {

const std::vector<std::string> kWithMasters{"O2", "O5"};

/// Line's weight after training in float64 by the same inputs; `change` runs where the program
/// writes weights or gradients of `net->parameters()`.
struct Replay {
  at::Tensor weight = torch::tensor({{1.0, -0.5, 0.25}}, at::kDouble);
  at::Tensor gradient = torch::zeros({1, 3}, at::kDouble);
  void backward(double factor) { gradient = gradient + row(factor).to(at::kDouble); }
  void step() { weight = weight - 0.125 * gradient; }
};

struct Unannounced : testing::TestWithParam<std::tuple<std::string, LossScale>> {
  Line net;
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(0.125)};
  std::pair<Model<Line>, Optimizer> handles = initialize(net, sgd, options());
  Model<Line>& model = handles.first;
  Optimizer& optimizer = handles.second;
  Replay replay;

  static Options options() {
    Options result = at_level(std::get<0>(GetParam()));
    result.loss_scale = std::get<1>(GetParam());
    return result;
  }
  void backward(double factor = 1) {
    scale_loss(model(row(factor)).sum(), optimizer).backward();
    replay.backward(factor);
  }
  at::Tensor stepped() const { return master_params(optimizer)[0].detach(); }
  void expect_as_replayed() {
    const double tolerance = std::get<0>(GetParam()) == "O5" ? 1e-2 : 2e-3;
    EXPECT_LT((stepped().to(at::kDouble) - replay.weight).abs().max().item<double>(), tolerance);
    EXPECT_TRUE(torch::equal(net->line->weight, stepped().to(net->line->weight.scalar_type())));
  }
};
INSTANTIATE_TEST_SUITE_P(Levels, Unannounced,
                         testing::Combine(testing::Values("O0", "O1", "O2", "O4", "O5"),
                                          testing::Values(LossScale("dynamic"), LossScale(8))));

TEST_P(Unannounced, WeightsThatAreClippedThroughDataStayClipped) {
  for (int i = 0; i < 4; ++i) {
    optimizer.zero_grad();
    replay.gradient.zero_();
    backward();
    EXPECT_TRUE(optimizer.step().applied());
    replay.step();
    for (const at::Tensor& p : net->parameters()) p.data().clamp_(-0.75, 0.75);
    replay.weight.clamp_(-0.75, 0.75);
    optimizer.invalidate_casts();
    EXPECT_LE(stepped().abs().max().item<float>(), 0.751F) << i;
  }
  expect_as_replayed();
}

TEST_P(Unannounced, AWriteThatNothingAnnouncesIsNoticedByItsFirstValue) {
  net->line->weight.data().fill_(0.5);
  replay.weight.fill_(0.5);
  backward();
  optimizer.step();
  replay.step();
  expect_as_replayed();
}

TEST_P(Unannounced, TrainAndEvalTakeInAllValues) {
  for (const bool on : {true, false}) {
    net->line->weight.data().select(1, 1).narrow(0, 0, 1).fill_(on ? 3.0 : 2.0);
    model.train(on);
    EXPECT_EQ(stepped()[0][1].item<float>(), on ? 3.0F : 2.0F);
  }
}

TEST_P(Unannounced, ABareStepReachesTheNextForward) {
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    replay.gradient.zero_();
    backward();
    sgd.step();
    replay.step();
    model(row());
  }
  expect_as_replayed();
}

TEST_P(Unannounced, GradientsAreClearedInWhateverWay) {
  const std::vector<std::function<void()>> ways{[&] { optimizer.zero_grad(); },
                                                [&] { optimizer.zero_grad(false); },
                                                [&] { model.zero_grad(); },
                                                [&] { model.zero_grad(false); },
                                                [&] { net->zero_grad(); },
                                                [&] { net->zero_grad(false); },
                                                [&] { sgd.zero_grad(); },
                                                [&] { sgd.zero_grad(false); },
                                                [&] {
                                                  for (at::Tensor& p : net->parameters())
                                                    p.mutable_grad().reset();
                                                },
                                                [&] {
                                                  for (at::Tensor& p : net->parameters())
                                                    p.mutable_grad().zero_();
                                                },
                                                [&] {
                                                  for (at::Tensor& p : master_params(optimizer))
                                                    p.mutable_grad().reset();
                                                }};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    backward();
    ways[i]();
    replay.gradient.zero_();
    backward(0.5);
    EXPECT_TRUE(optimizer.step().applied()) << i;
    replay.step();
    optimizer.zero_grad();
    replay.gradient.zero_();
    expect_as_replayed();
  }
}

TEST_P(Unannounced, WhatParametersShowIsTheUnscaledGradientThatIsStepped) {
  backward();
  const at::Tensor grad = net->parameters()[0].grad();
  ASSERT_TRUE(grad.defined());
  EXPECT_LT((grad.to(at::kDouble) - replay.gradient).abs().max().item<double>(), 1e-2);
  torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5);
  replay.gradient = replay.gradient * (0.5 / replay.gradient.norm());
  EXPECT_TRUE(optimizer.step().applied());
  replay.step();
  expect_as_replayed();
}

TEST_P(Unannounced, GradientsFromBeforeInitializeCount) {
  Line early;
  torch::optim::SGD own(early->parameters(), 0.125);
  early(row(2)).sum().backward();
  auto [late, handle] = initialize(early, own, options());
  scale_loss(late(row()).sum(), handle).backward();
  const at::Tensor grad = master_params(handle)[0].grad();
  EXPECT_LT((grad - row(3)).abs().max().item<float>(), 2e-2F);
}

TEST(UnannouncedWrites, AreFoundAtAnyPlaceWhenAskedFor) {
  for (const std::string& level : kWithMasters) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const auto written = [&, &optimizer = optimizer](float value) {
      net->first->weight.data()[1][1].fill_(value);
      return
          [&optimizer, value] { return master_params(optimizer)[0][1][1].item<float>() == value; };
    };
    const auto first = written(2.0F);
    EXPECT_FALSE(first()) << level;
    optimizer.invalidate_casts();
    EXPECT_TRUE(first()) << level;
    const auto second = written(3.0F);
    model.train();
    EXPECT_TRUE(second()) << level;
    const auto third = written(4.0F);
    model.eval();
    EXPECT_TRUE(third()) << level;
  }
}

TEST(UnannouncedWrites, OneThatIsSeenLetsAllBeLookedFor) {
  for (const std::string& level : kWithMasters) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    Listener listener;
    net->first->weight.data()[1][1].fill_(2.0);
    net->second->weight.data()[0][0].fill_(3.0);
    model(inputs());
    EXPECT_EQ(master_params(optimizer)[0][1][1].item<float>(), 2.0F) << level;
    EXPECT_EQ(net->second->weight[0][0].item<float>(), 3.0F) << level;
  }
}

TEST(UnannouncedWrites, AfterTheLastStepStayInTheWeightsThatAreGivenBack) {
  for (const std::string& level : kWithMasters) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    {
      auto [model, optimizer] = initialize(net, sgd, at_level(level));
      scale_loss(loss_of(model), optimizer).backward();
      optimizer.step();
      net->first->weight.data()[1][1].fill_(2.0);
      EXPECT_EQ(model_state_dict(model)["first.weight"][1][1].item<float>(), 2.0F) << level;
      net->first->weight.data()[1][1].fill_(3.0);
      const torch::NoGradGuard no_grad;
      net->second->weight.fill_(0.5);
    }
    EXPECT_EQ(net->first->weight[1][1].item<float>(), 3.0F) << level;
    EXPECT_EQ(net->second->weight.min().item<float>(), 0.5F) << level;
  }
}

TEST(UnannouncedWrites, SwappedWeightsAreTheOnesThatRun) {
  for (const char* const level : {"O1", "O2", "O3", "O4", "O5"}) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    scale_loss(loss_of(model), optimizer).backward();
    optimizer.step();
    const torch::NoGradGuard no_grad;
    const at::Tensor trained = model(inputs());
    const at::Tensor weight = net->first->weight.detach().clone();
    const at::Tensor bias = net->first->bias.detach().clone();
    net->first->weight.data().zero_();
    net->first->bias.data().zero_();
    EXPECT_TRUE(torch::equal(model(inputs()), model(2 * inputs()))) << level;
    net->first->weight.data().copy_(weight);
    net->first->bias.data().copy_(bias);
    EXPECT_TRUE(torch::equal(model(inputs()), trained)) << level;
  }
}

TEST(UnannouncedWrites, BesideABareStepAreAnErrorInsteadOfALoss) {
  for (const std::string& level : kWithMasters) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    scale_loss(loss_of(model), optimizer).backward();
    sgd.step();
    for (const at::Tensor& p : net->parameters()) p.data().fill_(0.03);
    EXPECT_THROW(model(inputs()), Error) << level;
  }
}

TEST(UnannouncedWrites, WeightsAreNeverWrittenBetweenForwardAndBackward) {
  for (const std::string& level : kLevels) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    for (int i = 0; i < 3; ++i) {
      optimizer.zero_grad();
      const at::Tensor loss = loss_of(model);
      EXPECT_NO_THROW(scale_loss(loss, optimizer).backward()) << level;
      sgd.step();
      EXPECT_NO_THROW(scale_loss(loss_of(model), optimizer).backward()) << level;
      optimizer.step();
      for (const at::Tensor& p : net->parameters()) p.data().clamp_(-0.2, 0.2);
      optimizer.invalidate_casts();
      for (const at::Tensor& p : master_params(optimizer))
        EXPECT_LE(p.abs().max().item<float>(), 0.201F) << level;
    }
  }
}

TEST(TrainingThatStandsStill, PlainBackwardAndABareStepAreAnErrorAtTheNextCall) {
  for (const std::string& level : kWithMasters) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    loss_of(model).backward();
    sgd.step();
    EXPECT_THROW(model(inputs()), Error) << level;
    const torch::NoGradGuard no_grad;
    EXPECT_NO_THROW(model(inputs())) << "no training";
  }
}

TEST(TrainingThatStandsStill, IsNoticedWhereTheNetworkClearsItsGradients) {
  for (const std::string& level : kWithMasters) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    torch::optim::SGD stranger(net->parameters(), 0.1);
    int steps = 0;
    const auto train = [&, &model = model] {
      for (; steps < 20; ++steps) {
        net->zero_grad();
        loss_of(model).backward();
        stranger.step();
      }
    };
    EXPECT_THROW(train(), Error) << level;
    EXPECT_LE(steps, 3) << level;
  }
}

TEST(TrainingThatStandsStill, ALookAtGradientsBeforeTrainingIsNone) {
  for (const std::string& level : kWithMasters) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    loss_of(model).backward();
    net->zero_grad();
    for (int i = 0; i < 3; ++i) {
      optimizer.zero_grad();
      scale_loss(loss_of(model), optimizer).backward();
      EXPECT_TRUE(optimizer.step().applied());
    }
    optimizer.zero_grad();
    loss_of(model).backward();
    EXPECT_THROW(optimizer.step(), Error) << level;
  }
}

TEST(TrainingThatStandsStill, LooksAtGradientsOutsideOfTrainingAreNone) {
  for (const std::string& level : kWithMasters) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    model.eval();
    for (int i = 0; i < 5; ++i) {
      net->zero_grad();
      loss_of(model).backward();
    }
    model.train();
    const at::Tensor loss = loss_of(model);
    optimizer.zero_grad();
    scale_loss(loss, optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
}

TEST(TrainingThatStandsStill, GradientsOfAnotherOptimizersScopeAreNone) {
  for (const std::string& level : kWithMasters) {
    Line generator;
    Line critic;
    critic->line = critic->replace_module(
        "line", torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)));
    torch::optim::SGD sgd_g(generator->parameters(), 0.1);
    torch::optim::SGD sgd_c(critic->parameters(), 0.1);
    auto [models, optimizers] =
        initialize(std::tie(generator, critic), std::tie(sgd_g, sgd_c), at_level(level));
    auto& [generate, judge] = models;
    auto& [of_generator, of_critic] = optimizers;
    for (int i = 0; i < 4; ++i) {
      of_generator.zero_grad();
      scale_loss(judge(generate(row())).sum(), of_generator).backward();
      EXPECT_TRUE(of_generator.step().applied());
      const at::Tensor judged = judge(torch::ones({1, 1}));
      of_critic.zero_grad();
      scale_loss(judged.sum(), of_critic).backward();
      EXPECT_TRUE(of_critic.step().applied());
    }
  }
}

}  // namespace
}  // namespace mezzo::amp
