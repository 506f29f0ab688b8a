// Options::explain_skips: the messages of the first skipped steps say why, and training is the
// same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "insight/gallery.h"
#include "mezzo/messages.h"
#include "mezzo/optim.h"

namespace mezzo::insight {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Messages of the library while it lives.
class Overheard {
 public:
  Overheard()
      : before_(set_message_sink([this](const std::string& text) { texts.push_back(text); })) {}
  ~Overheard() { set_message_sink(std::move(before_)); }
  Overheard(const Overheard&) = delete;
  Overheard& operator=(const Overheard&) = delete;

  std::vector<std::string> texts;

 private:
  MessageSink before_;
};

/// Why one step of this network on this input was skipped.
std::string reason_of_skip(
    const std::string& level, double input, Step middle,
    const Step& loss = [](const at::Tensor& y) { return y.sum(); }, double scale = 16) {
  Sandwich net(std::move(middle));
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd,
                                            {.opt_level = level,
                                             .loss_scale = scale,
                                             .verbosity = 0,
                                             .check_finite = true,
                                             .explain_skips = 1});
  amp::scale_loss(loss(model(torch::full({3, 4}, input))), optimizer).backward();
  return optimizer.step().reason();
}

TEST(ExplainSkips, TheFirstMessagesHoldTheShortForm) {
  const Overheard overheard;
  Sandwich net([](const at::Tensor& x) { return x * x / 1000.0; });
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = "O1", .init_loss_scale = 16, .explain_skips = 2});
  std::vector<std::string> reasons;
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    amp::scale_loss(model(torch::full({3, 4}, 300.0)).sum(), optimizer).backward();
    reasons.push_back(optimizer.step().reason());
  }
  const std::string expected = "; explained: mul (between stem and head) overflowed";
  EXPECT_THAT(reasons[0], HasSubstr(expected));
  EXPECT_THAT(reasons[1], HasSubstr(expected));
  EXPECT_THAT(reasons[2], Not(HasSubstr("explained")));
  std::vector<std::string> skips;
  for (const std::string& text : overheard.texts) {
    if (text.starts_with("mezzo: step skipped")) skips.push_back(text);
  }
  ASSERT_EQ(skips.size(), 3U);
  EXPECT_THAT(skips[0], HasSubstr(expected + "; loss scale 16 -> 8"));
  EXPECT_THAT(skips[2], Not(HasSubstr("explained")));
}

TEST(ExplainSkips, FindsFaultsOfTheBackwardPassAtEveryLevel) {
  const Step root = [](const at::Tensor& x) { return (x * 0).sqrt(); };
  for (const std::string level : {"O0", "O1", "O2", "O3", "O4", "O5"}) {
    EXPECT_THAT(reason_of_skip(level, 1, root),
                HasSubstr("; explained: backward of sqrt (between stem and head) divided by zero"))
        << level;
  }
}

TEST(ExplainSkips, FindsAScaleThatIsTooHigh) {
  const std::string reason = reason_of_skip(
      "O2", 1, {}, [](const at::Tensor& y) { return y.sum() * 1000; }, 16384);
  EXPECT_THAT(reason, HasSubstr("; explained: backward of "));
  EXPECT_THAT(reason, HasSubstr("gave a gradient beyond its type"));
}

TEST(ExplainSkips, TellsLossAndDataFromTheNetwork) {
  EXPECT_THAT(reason_of_skip("O1", 1, {}, [](const at::Tensor& y) { return (y.sum() * 0).sqrt(); }),
              HasSubstr("; explained: the loss gives the model's results gradients that are not "
                        "finite"));
  EXPECT_THAT(reason_of_skip("O1", std::numeric_limits<double>::quiet_NaN(), {}),
              HasSubstr("; explained: the data holds values that are not finite"));
}

TEST(ExplainSkips, SaysWhereTheLastCallDoesNotSuffice) {
  Sandwich net([](const at::Tensor& x) { return x * x / 1000.0; });
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(
      net, sgd, {.opt_level = "O1", .init_loss_scale = 16, .verbosity = 0, .explain_skips = 2});
  const at::Tensor bad = torch::full({3, 4}, 300.0), good = torch::ones({3, 4});
  const at::Tensor first = model(bad).sum(), last = model(good).sum();
  amp::scale_loss(first + last, optimizer).backward();
  EXPECT_THAT(optimizer.step().reason(),
              HasSubstr("; not explained: the model's last call passes by itself"));
  amp::scale_loss(model.call([&](SandwichImpl& inner) { return inner.forward(bad); }).sum(),
                  optimizer)
      .backward();
  EXPECT_THAT(optimizer.step().reason(),
              HasSubstr("; not explained: the model's last call cannot be made again"));
}

TEST(ExplainSkips, InputsAreHeldUntilTheNextCallAndNotLonger) {
  Sandwich net{Step()};
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(
      net, sgd, {.opt_level = "O1", .init_loss_scale = 16, .verbosity = 0, .explain_skips = 1});
  at::Tensor x = torch::ones({3, 4});
  const c10::weak_intrusive_ptr<c10::TensorImpl> weak(x.getIntrusivePtr());
  static_cast<void>(model(x));
  x.reset();
  EXPECT_FALSE(weak.expired());
  static_cast<void>(model(torch::ones({3, 4})));
  EXPECT_TRUE(weak.expired());
}

struct NoisyPairImpl : torch::nn::Module {
  NoisyPairImpl() {
    first = register_module("first", torch::nn::Linear(4, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    drop = register_module("drop", torch::nn::Dropout(0.5));
    second = register_module("second", torch::nn::Linear(8, 2));
  }
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x, double factor) {
    const at::Tensor y = torch::relu(norm(first(x)));
    return {second(drop(y)) * factor, {y}};
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout drop{nullptr};
};
TORCH_MODULE(NoisyPair);

/// Everything that training moves, after ten steps of which some overflow.
std::vector<at::Tensor> state_with(int explain_skips, const std::string& level, bool fused) {
  torch::manual_seed(3);
  NoisyPair net;
  std::unique_ptr<torch::optim::Optimizer> inner;
  if (fused) {
    inner = std::make_unique<optim::FusedAdam>(net->parameters(), optim::FusedAdamOptions(1e-2));
  } else {
    inner = std::make_unique<torch::optim::SGD>(net->parameters(),
                                                torch::optim::SGDOptions(0.05).momentum(0.9));
  }
  auto [model, optimizer] = amp::initialize(net, *inner,
                                            {.opt_level = level,
                                             .loss_scale = "dynamic",
                                             .init_loss_scale = 8388608,
                                             .growth_interval = 3,
                                             .verbosity = 0,
                                             .defer_unscale = fused,
                                             .check_finite = true,
                                             .explain_skips = explain_skips});
  int explained = 0;
  for (int i = 0; i < 10; ++i) {
    const double factor = i == 5 ? std::numeric_limits<double>::infinity() : 1.0;
    optimizer.zero_grad();
    const auto [y, features] = model(torch::randn({6, 4}) * factor, 2.0);
    amp::scale_loss(y.pow(2).sum() + features[0].sum(), optimizer).backward();
    if (optimizer.step().reason().find("; explained: ") != std::string::npos) ++explained;
  }
  EXPECT_EQ(explained > 0, explain_skips > 0) << level;
  std::vector<at::Tensor> all{
      torch::rand({2}), torch::full({1}, optimizer.loss_scale(), at::kDouble),
      torch::full({1}, optimizer.skipped_steps()), torch::full({1}, optimizer.applied_steps())};
  for (const auto& item : amp::model_state_dict(model)) all.push_back(item.value());
  for (const at::Tensor& parameter : net->parameters()) {
    all.push_back(parameter.detach().clone());
    all.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::zeros({}));
  }
  return all;
}

TEST(ExplainSkips, LeavesTrainingAloneToTheBit) {
  for (const std::string level : {"O0", "O1", "O2", "O3", "O4", "O5"}) {
    for (const bool fused : {false, true}) {
      const auto without = state_with(0, level, fused), with = state_with(20, level, fused);
      ASSERT_EQ(with.size(), without.size());
      for (std::size_t i = 0; i < with.size(); ++i)
        EXPECT_TRUE(with[i].equal(without[i])) << level << " tensor " << i;
    }
  }
}

TEST(ExplainSkips, IsAnOptionLikeTheOthers) {
  EXPECT_EQ(amp::Options::from_flags({{"explain_skips", "3"}}).explain_skips, 3);
  Sandwich net{Step()};
  torch::optim::SGD sgd(net->parameters(), 0.01);
  EXPECT_THROW(amp::initialize(net, sgd, {.explain_skips = -1}), ConfigError);
}

}  // namespace
}  // namespace mezzo::insight
