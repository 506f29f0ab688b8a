// Programs that clip gradients while those wait for the step to be unscaled (defer_unscale).
#include <gmock/gmock.h>

#include <functional>
#include <memory>

#include "amp/training.h"
#include "mezzo/error.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kBound = 0.5;

struct Deferred {
  Deferred(const std::string& level, bool fused, bool defers = true) {
    const std::vector<at::Tensor> parameters = net->parameters();
    if (fused) {
      inner = std::make_unique<optim::FusedSGD>(parameters, optim::FusedSGDOptions(0.125));
    } else {
      inner = std::make_unique<torch::optim::SGD>(parameters, 0.125);
    }
    Options options = at_level(level);
    options.defer_unscale = defers;
    handles.emplace(initialize(net, *inner, options));
  }
  Optimizer& optimizer() { return handles->second; }
  void backward() { scale_loss(handles->first(row()).sum(), optimizer()).backward(); }
  at::Tensor weight() { return master_params(optimizer())[0].detach().to(at::kFloat); }

  Line net;
  std::unique_ptr<torch::optim::Optimizer> inner;
  std::optional<std::pair<Model<Line>, Optimizer>> handles;
};

struct ScaledGradients : testing::TestWithParam<std::tuple<std::string, bool>> {
  static std::string level() { return std::get<0>(GetParam()); }
  static bool fused() { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Levels, ScaledGradients,
                         testing::Combine(testing::Values("O1", "O2", "O4", "O5"),
                                          testing::Bool()));

using Clip = std::function<void(const std::vector<at::Tensor>&)>;

const std::vector<Clip> kClips{
    [](const std::vector<at::Tensor>& of) { torch::nn::utils::clip_grad_norm_(of, kBound); },
    [](const std::vector<at::Tensor>& of) { torch::nn::utils::clip_grad_value_(of, kBound); },
    [](const std::vector<at::Tensor>& of) { optim::clip_grad_norm_(of, kBound); },
};

TEST_P(ScaledGradients, AreUnscaledForWhoClipsWhatTheOptimizerSteps) {
  using Get = std::function<std::vector<at::Tensor>(Deferred&)>;
  const std::vector<Get> ways{
      [](Deferred& training) { return master_params(training.optimizer()); },
      [](Deferred& training) { return training.optimizer().param_groups()[0].params(); },
      [](Deferred& training) {
        return training.handles->first.named_masters().values().empty()
                   ? master_params(training.optimizer())
                   : training.handles->first.named_masters().values();
      },
  };
  for (const Clip& clip : kClips) {
    for (const Get& get : ways) {
      Deferred expected(level(), fused(), /*defers=*/false);
      Deferred training(level(), fused());
      for (Deferred* each : {&expected, &training}) {
        for (int step = 0; step < 2; ++step) {
          each->optimizer().zero_grad();
          each->backward();
          clip(get(*each));
          EXPECT_TRUE(each->optimizer().step().applied());
        }
      }
      EXPECT_TRUE(torch::equal(training.weight(), expected.weight()));
    }
  }
}

TEST_P(ScaledGradients, ThatAProgramWritesAreAnErrorThatNamesTheOptimizersOwnClipping) {
  const auto is_told = ThrowsMessage<Error>(
      AllOf(HasSubstr("'line.weight'"), HasSubstr("max_grad_norm"), HasSubstr("master_params")));
  const bool scaled = level() == "O1" || level() == "O2";
  for (const Clip& clip : kClips) {
    Deferred training(level(), fused());
    const at::Tensor before = training.weight();
    training.backward();
    clip(training.net->parameters());
    if (scaled) {
      EXPECT_THAT([&] { training.optimizer().step(); }, is_told);
      EXPECT_THAT([&] { training.backward(); }, is_told) << "accumulated";
      EXPECT_THAT([&] { master_params(training.optimizer()); }, is_told);
      training.optimizer().zero_grad();
      EXPECT_TRUE(torch::equal(training.weight(), before)) << "nothing moved";
      training.backward();
    }
    EXPECT_TRUE(training.optimizer().step().applied());
  }
}

TEST_P(ScaledGradients, OfALossThatWasNotScaledDoNotJoinThem) {
  if (level() != "O1") return;
  Deferred training(level(), fused());
  training.backward();
  training.handles->first(row()).sum().backward();
  EXPECT_THAT([&] { training.optimizer().step(); },
              ThrowsMessage<Error>(HasSubstr("max_grad_norm")));
}

TEST_P(ScaledGradients, ThatWereClearedByAnybodyAreNotWritten) {
  for (const bool to_none : {false, true}) {
    for (const int way : {0, 1, 2}) {
      Deferred training(level(), fused());
      Deferred expected(level(), fused());
      training.backward();
      if (way == 0) training.net->zero_grad(to_none);
      if (way == 1) training.inner->zero_grad(to_none);
      if (way == 2) training.handles->first.zero_grad(to_none);
      if (way == 1 && (level() == "O2" || level() == "O5"))
        training.net->zero_grad(to_none);  // it knows masters alone
      for (Deferred* each : {&training, &expected}) {
        each->backward();
        EXPECT_TRUE(each->optimizer().step().applied());
      }
      EXPECT_TRUE(torch::equal(training.weight(), expected.weight())) << to_none << way;
    }
  }
}

TEST_P(ScaledGradients, ThatAreOnlyReadAndAccumulatedStepAsBefore) {
  Deferred training(level(), fused());
  Deferred expected(level(), fused(), /*defers=*/false);
  for (Deferred* each : {&training, &expected}) {
    for (int step = 0; step < 2; ++step) {
      each->optimizer().zero_grad();
      for (int batch = 0; batch < 3; ++batch) {
        each->backward();
        EXPECT_TRUE(each->net->line->weight.grad().norm().isfinite().item<bool>());
      }
      EXPECT_TRUE(each->optimizer().step().applied());
    }
  }
  EXPECT_TRUE(torch::allclose(training.weight(), expected.weight(), 1e-3, 1e-3));
}

}  // namespace
}  // namespace mezzo::amp
