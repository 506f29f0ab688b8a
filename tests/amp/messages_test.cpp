#include <gmock/gmock.h>

#include <limits>

#include "amp/training.h"
#include "mezzo/hardware.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;

TEST(Messages, TellTheLevelItsDefaultsAndWhatIsInForce) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const Listener listener;
  auto handles = initialize(net, sgd, {.opt_level = "O2", .loss_scale = 128});
  EXPECT_THAT(listener.heard, HasSubstr("optimization level O2"));
  EXPECT_THAT(listener.heard, HasSubstr("  cast_model_type       : Half\n"));
  EXPECT_THAT(listener.heard, HasSubstr("  loss_scale            : dynamic\n"));
  EXPECT_THAT(listener.heard, HasSubstr("after the options that were given"));
  EXPECT_THAT(listener.heard, HasSubstr("  loss_scale            : 128\n"));
}

TEST(Messages, TellEachSkippedStep) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, {.opt_level = "O1"});
  const Listener listener;
  const double infinity = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 2; ++i) {
    scale_loss(model(torch::ones({1, 3})).sum() * infinity, optimizer).backward();
    optimizer.step();
  }
  EXPECT_EQ(listener.count("step skipped: loss 0"), 2);
  EXPECT_THAT(listener.heard, HasSubstr("'line.weight'"));
  EXPECT_THAT(listener.heard, HasSubstr("loss scale 65536 -> 32768"));
}

TEST(Messages, TellOnceOfALossThatIsNotANumber) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, {.opt_level = "O1"});
  const Listener listener;
  for (int i = 0; i < 2; ++i) {
    scale_loss(model(torch::ones({1, 3})).sum() * std::numeric_limits<double>::quiet_NaN(),
               optimizer)
        .backward();
    EXPECT_TRUE(optimizer.step().skipped());
  }
  EXPECT_EQ(listener.count("is not a finite number, first in 'line.weight': the step is skipped"),
            1);
}

TEST(Messages, TellOnceOfParametersWithoutGradient) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, {.opt_level = "O2", .init_loss_scale = 1024});
  const Listener listener;
  for (int i = 0; i < 3; ++i) {
    scale_loss(model.call(&TinyNetImpl::features, inputs()).sum(), optimizer).backward();
    optimizer.step();
  }
  EXPECT_EQ(listener.count("got no gradient"), 1);
  EXPECT_THAT(listener.heard, HasSubstr("4 parameters got no gradient"));
  EXPECT_THAT(listener.heard, HasSubstr("'norm.weight'"));
}

TEST(Messages, TellOnceOfAPlainBackwardWhileTheScaleIsDynamic) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, {.opt_level = "O1"});
  const Listener listener;
  for (int i = 0; i < 2; ++i) {
    model(torch::ones({1, 3})).sum().backward();
    optimizer.step();
  }
  EXPECT_EQ(listener.count("plain backward"), 1);
}

TEST(Messages, TellOfAnEpsThatVanishesInHalf) {
  for (const double eps : {1e-8, 1e-4}) {
    Line net;
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.1).eps(eps));
    const Listener listener;
    auto handles = initialize(net, adam, {.opt_level = "O3"});
    EXPECT_EQ(listener.count("zero in half"), eps < 1e-7 ? 1 : 0);
  }
}

TEST(Messages, TellOnceOfStepsAndCallsBehindOurBack) {
  for (const bool adam : {true, false}) {
    Line net;
    std::unique_ptr<torch::optim::Optimizer> inner;
    if (adam) {
      inner = std::make_unique<torch::optim::Adam>(net->parameters(), 0.1);
    } else {
      inner =
          std::make_unique<torch::optim::SGD>(net->parameters(), 0.1);  // moves no version counter
    }
    auto [model, optimizer] = initialize(net, *inner, {.opt_level = "O2", .init_loss_scale = 1024});
    const Listener listener;
    for (int i = 0; i < 2; ++i) {
      optimizer.zero_grad();
      scale_loss(model(torch::ones({1, 3})).sum(), optimizer).backward();
      inner->step();
      model.eval();
    }
    scale_loss(net(torch::ones({1, 3}).to(at::kHalf)).sum(), optimizer).backward();
    optimizer.step();
    scale_loss(net(torch::ones({1, 3}).to(at::kHalf)).sum(), optimizer).backward();
    optimizer.step();
    EXPECT_EQ(listener.count("outside of step()"), 1);
    EXPECT_EQ(listener.count("bare network"), 1);
    EXPECT_TRUE(torch::equal(net->line->weight, master_params(optimizer)[0].to(at::kHalf)));
  }
}

/// Every optimizer of LibTorch that steps without a closure, with state and without.
std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_of(torch::nn::Module& net) {
  namespace optim = torch::optim;
  std::vector<std::unique_ptr<optim::Optimizer>> all;
  const auto params = net.parameters();
  all.push_back(std::make_unique<optim::SGD>(params, optim::SGDOptions(0.1)));
  all.push_back(std::make_unique<optim::SGD>(params, optim::SGDOptions(0.1).momentum(0.9)));
  all.push_back(std::make_unique<optim::Adam>(params, optim::AdamOptions(0.1)));
  all.push_back(std::make_unique<optim::AdamW>(params, optim::AdamWOptions(0.1)));
  all.push_back(std::make_unique<optim::RMSprop>(params, optim::RMSpropOptions(0.1)));
  all.push_back(std::make_unique<optim::Adagrad>(params, optim::AdagradOptions(0.1)));
  return all;
}

TEST(Messages, TellOnceOfABareStepWithoutMastersToo) {
  for (const char* level : {"O0", "O1", "O4"}) {
    Line any;
    for (std::size_t i = 0; i < optimizers_of(*any).size(); ++i) {
      Line net;
      const auto inner = std::move(optimizers_of(*net)[i]);
      auto [model, optimizer] =
          initialize(net, *inner, {.opt_level = level, .init_loss_scale = 1024});
      const Listener listener;
      const auto train = [&, &model = model, &optimizer = optimizer](bool bare) {
        optimizer.zero_grad();
        scale_loss(model(torch::ones({1, 3})).sum(), optimizer).backward();
        bare ? void(inner->step()) : void(optimizer.step());
      };
      train(false);
      train(false);
      EXPECT_EQ(listener.count("outside of step()"), 0) << level << ", optimizer " << i;
      train(true);
      train(true);
      train(false);
      EXPECT_EQ(listener.count("outside of step()"), 1) << level << ", optimizer " << i;
    }
  }
}

TEST(Messages, AStepOfAnotherHandleIsNoBareStep) {
  for (const char* level : {"O0", "O1", "O4"}) {
    Line net;
    // Neither of these moves a version counter or has a state.
    torch::optim::SGD one(net->parameters(), 0.1);
    torch::optim::SGD other(net->parameters(), 0.2);
    auto [model, optimizers] =
        initialize(net, std::tie(one, other), {.opt_level = level, .init_loss_scale = 1024});
    auto& [first, second] = optimizers;
    const Listener listener;
    for (int i = 0; i < 3; ++i) {
      for (Optimizer* optimizer : {&first, &second}) {
        optimizer->zero_grad();
        scale_loss(model(torch::ones({1, 3})).sum(), *optimizer).backward();
        optimizer->step();
      }
    }
    EXPECT_EQ(listener.count("outside of step()"), 0) << level;
    second.zero_grad();
    scale_loss(model(torch::ones({1, 3})).sum(), second).backward();
    other.step();
    first.zero_grad();
    scale_loss(model(torch::ones({1, 3})).sum(), first).backward();
    first.step();
    EXPECT_EQ(listener.count("outside of step()"), 1) << level;
  }
}

TEST(Messages, AWriteThroughDataIsToldAsSuch) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, {.opt_level = "O1", .init_loss_scale = 1024});
  const Listener listener;
  for (int i = 0; i < 2; ++i) {
    optimizer.zero_grad();
    scale_loss(model(torch::ones({1, 3})).sum(), optimizer).backward();
    optimizer.step();
    net->line->weight.data().clamp_(-0.01, 0.01);
  }
  EXPECT_EQ(listener.count("write through data()"), 1);
}

TEST(Messages, LoadingIsNoStep) {
  for (std::size_t i = 0; i < 6; ++i) {
    Line net;
    const auto inner = std::move(optimizers_of(*net)[i]);
    std::stringstream file;
    {
      auto [model, optimizer] = initialize(net, *inner, at_level("O1"));
      scale_loss(model(torch::ones({1, 3})).sum(), optimizer).backward();
      optimizer.step();
      torch::save(optimizer, file);
    }
    Line other;
    const auto fresh = std::move(optimizers_of(*other)[i]);
    auto [model, optimizer] =
        initialize(other, *fresh, {.opt_level = "O1", .init_loss_scale = 1024});
    const Listener listener;
    torch::load(optimizer, file);
    const torch::NoGradGuard no_grad;
    other->line->weight.copy_(net->line->weight);
    const at::AutoGradMode grad(true);
    scale_loss(model(torch::ones({1, 3})).sum(), optimizer).backward();
    optimizer.step();
    EXPECT_EQ(listener.count("outside of step()"), 0) << "optimizer " << i;
  }
}

TEST(Messages, TellOfALevelThatIsSlowHere) {
  set_compute_mode(at::kHalf, ComputeMode::kEmulated);
  Line net;
  const Listener listener;
  auto model = initialize(net, {.opt_level = "O1"});
  set_compute_mode(at::kHalf, ComputeMode::kAuto);
  EXPECT_EQ(listener.count("saves no time on this processor"), 1);
}

TEST(Messages, VerbosityZeroIsSilent) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const Listener listener;
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  scale_loss(model(torch::ones({1, 3})).sum() * std::numeric_limits<double>::infinity(), optimizer)
      .backward();
  optimizer.step();
  EXPECT_EQ(listener.heard, "");
}

}  // namespace
}  // namespace mezzo::amp
