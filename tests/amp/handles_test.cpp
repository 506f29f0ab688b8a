// Handles as C++ programs hold them: as members, assigned later, from pointers and lists.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "amp/training.h"
#include "mezzo/amp.h"

namespace mezzo::amp {
namespace {

template <typename Models, typename Optimizers>
void train_once(const Models& model, Optimizers& optimizer) {
  optimizer.zero_grad();
  scale_loss(loss_of(model), optimizer).backward();
  EXPECT_TRUE(optimizer.step().applied());
}

TEST(Handle, ALevelsNameInThePlaceOfOptionsMeansThatLevel) {
  const Listener quiet;
  for (const std::string level : {"O2", "O5"}) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, level);
    EXPECT_EQ(model.properties().opt_level, level);
    train_once(model, optimizer);
  }
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_EQ(initialize(net, sgd, {"O2"}).second.properties().opt_level, "O2");
  EXPECT_EQ(initialize(net, sgd, "O5").second.properties().opt_level, "O5");
  EXPECT_EQ(initialize(net, "O3").properties().opt_level, "O3");
  EXPECT_EQ(initialize(net, {"O3"}).properties().opt_level, "O3");
  EXPECT_EQ(initialize(net, sgd, {}).second.properties().opt_level, "O1");
  EXPECT_EQ(initialize(net, sgd, {true, "O4"}).second.properties().opt_level, "O4");
  EXPECT_THROW(initialize(net, sgd, {"02"}), ConfigError);
}

TEST(Handle, EnabledIsNoPointer) {
  EXPECT_FALSE((std::is_constructible_v<Enabled, const char*>));
  EXPECT_FALSE((std::is_constructible_v<Enabled, const char(&)[3]>));
  EXPECT_FALSE((std::is_constructible_v<Enabled, std::nullptr_t>));
  Options options;
  EXPECT_TRUE(options.enabled);
  options.enabled = 1 > 2;
  EXPECT_FALSE(options.enabled);
}

/// The shape that most programs have.
class Trainer {
 public:
  explicit Trainer(const std::string& level) {
    std::tie(model_, optimizer_) = initialize(net_, sgd_, at_level(level));
  }
  void run() { train_once(model_, optimizer_); }
  bool is_ready() const { return model_ && optimizer_; }

 private:
  TinyNet net_;
  torch::optim::SGD sgd_{net_->parameters(), torch::optim::SGDOptions(0.1)};
  Model<TinyNet> model_;
  Optimizer optimizer_;
};

TEST(Handle, HandlesAreMembersThatAreAssignedLater) {
  for (const std::string& level : kLevels) {
    Trainer trainer(level);
    EXPECT_TRUE(trainer.is_ready());
    trainer.run();
  }
}

template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Handle, AnEmptyHandleSaysSoWhateverIsAskedOfIt) {
  Model<TinyNet> model;
  Optimizer optimizer;
  EXPECT_FALSE(model);
  EXPECT_FALSE(optimizer);
  const at::Tensor loss = torch::ones({});
  const std::string path = testing::TempDir() + "empty_handle.safetensors";
  const std::vector<std::function<void()>> asked{[&] { model(inputs()); },
                                                 [&] { model.call([](TinyNetImpl&) {}); },
                                                 [&] { model.parameters(); },
                                                 [&] { model.train(); },
                                                 [&] { model.module(); },
                                                 [&] { model.properties(); },
                                                 [&] { model_state_dict(model); },
                                                 [&] { optimizer.step(); },
                                                 [&] { optimizer.zero_grad(); },
                                                 [&] { optimizer.inner(); },
                                                 [&] { optimizer.state(); },
                                                 [&] { optimizer.loss_scale(); },
                                                 [&] { master_params(optimizer); },
                                                 [&] { scale_loss(loss, optimizer).backward(); },
                                                 [&] { state_dict(optimizer); },
                                                 [&] { save_checkpoint(path, model, optimizer); },
                                                 [&] { std::ostringstream() << model; },
                                                 [&] { Ema(model, 0.9); }};
  for (std::size_t i = 0; i < asked.size(); ++i) {
    EXPECT_NE(error_of(asked[i]).find("this handle is empty; assign what initialize returned"),
              std::string::npos)
        << i;
  }
}

TEST(Handle, PointersToOptimizersAreOptimizers) {
  for (const std::string level : {"O0", "O1", "O2", "O5"}) {
    const auto owned = [&](auto&& make) {
      TinyNet net;
      auto held = make(net);
      auto [model, optimizer] = initialize(net, held, at_level(level));
      EXPECT_EQ(&optimizer.inner(), &*held);
      train_once(model, optimizer);
    };
    owned([](TinyNet& net) { return std::make_unique<torch::optim::SGD>(net->parameters(), 0.1); });
    owned([](TinyNet& net) {
      return std::unique_ptr<torch::optim::Optimizer>(
          std::make_unique<torch::optim::Adam>(net->parameters(), 0.1));
    });
    owned([](TinyNet& net) { return std::make_shared<torch::optim::SGD>(net->parameters(), 0.1); });
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, &sgd, at_level(level));
    train_once(model, optimizer);
  }
}

TEST(Handle, ASharedOptimizerIsKeptAlive) {
  TinyNet net;
  std::weak_ptr<torch::optim::Optimizer> watched;
  {
    auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
    watched = sgd;
    auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
    sgd.reset();
    ASSERT_FALSE(watched.expired());
    train_once(model, optimizer);
  }
  EXPECT_TRUE(watched.expired()) << "the handles held it for longer than they lived";
}

TEST(Handle, ANullPointerIsRefused) {
  TinyNet net;
  const std::shared_ptr<torch::optim::Optimizer> none;
  EXPECT_THROW(initialize(net, none, at_level("O1")), ConfigError);
  Options off = at_level("O1");
  off.enabled = false;
  EXPECT_THROW(initialize(net, none, off), ConfigError);
}

struct TwoOptimizers {
  TinyNet net;
  torch::optim::SGD first{net->first->parameters(), torch::optim::SGDOptions(0.1)};
  torch::optim::Adam second{net->second->parameters(), torch::optim::AdamOptions(0.1)};

  template <typename Optimizers>
  void train(const Model<TinyNet>& model, Optimizers& optimizers) {
    ASSERT_EQ(optimizers.size(), 2U);
    scale_loss(loss_of(model), std::span<Optimizer>(optimizers)).backward();
    for (Optimizer& each : optimizers) EXPECT_TRUE(each.step().applied());
  }
};

TEST(Handle, ListsOfOptimizersComeInManyForms) {
  {
    TwoOptimizers two;
    auto [model, optimizers] = initialize(two.net, {two.first, two.second}, at_level("O2"));
    two.train(model, optimizers);
  }
  {
    TwoOptimizers two;
    auto [model, optimizers] =
        initialize(two.net, {std::ref(two.first), std::ref(two.second)}, at_level("O2"));
    two.train(model, optimizers);
  }
  {
    TwoOptimizers two;
    std::vector<torch::optim::Optimizer*> list{&two.first, &two.second};
    auto [model, optimizers] = initialize(two.net, list, at_level("O2"));
    two.train(model, optimizers);
  }
  {
    TinyNet net;
    std::vector<std::shared_ptr<torch::optim::Optimizer>> list{
        std::make_shared<torch::optim::SGD>(net->first->parameters(), 0.1),
        std::make_shared<torch::optim::Adam>(net->second->parameters(), 0.1)};
    auto [model, optimizers] = initialize(net, list, at_level("O2"));
    TwoOptimizers().train(model, optimizers);
  }
  {
    TinyNet net;
    std::vector<std::unique_ptr<torch::optim::Optimizer>> list;
    list.push_back(std::make_unique<torch::optim::SGD>(net->parameters(), 0.1));
    auto [model, optimizers] = initialize(net, list, at_level("O2"));
    train_once(model, optimizers.front());
  }
}

TEST(Handle, StateMeansTheInnerOptimizersState) {
  TinyNet net;
  torch::optim::Adam adam(net->parameters(), 1e-3);
  auto [model, optimizer] = initialize(net, adam, at_level("O2"));
  EXPECT_TRUE(optimizer.state().empty());
  train_once(model, optimizer);
  EXPECT_EQ(&optimizer.state(), &adam.state());
  EXPECT_EQ(optimizer.state().count(master_params(optimizer)[0].unsafeGetTensorImpl()), 1U);
}

TEST(Handle, AnAnyModuleIsANetwork) {
  for (const std::string level : {"O0", "O1", "O2", "O4"}) {
    TinyNet net;
    torch::nn::AnyModule any(net);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(any, sgd, at_level(level));
    EXPECT_EQ(model(inputs()).scalar_type(), at::kFloat) << level;
    train_once(model, optimizer);
  }
}

TEST(Handle, AModelIsPrintedAsItsNetwork) {
  TinyNet net;
  auto model = initialize(net, at_level("O1"));
  std::ostringstream of_model;
  of_model << model;
  std::ostringstream of_net;
  of_net << *net;
  EXPECT_EQ(of_model.str(), of_net.str());
}

TEST(Handle, AFloat64NetworkIsNotAnnouncedInALowType) {
  for (const std::string& level : kLevels) {
    Listener listener;
    TinyNet net;
    net->to(at::kDouble);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, level);
    EXPECT_EQ(listener.count("the network is float64 and stays so"), 1) << level;
    EXPECT_EQ(listener.count("float16 model"), 0) << level;
    EXPECT_EQ(net->first->weight.scalar_type(), at::kDouble) << level;
  }
}

}  // namespace
}  // namespace mezzo::amp
