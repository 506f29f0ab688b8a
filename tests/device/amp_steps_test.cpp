// Training steps under mixed precision on a device that nobody waits for: whole steps as graphs,
// and no wait in a step that is called.
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <string>

#include "mezzo/amp.h"
#include "mezzo/ema.h"
#include "mezzo/error.h"
#include "mezzo/insight.h"
#include "mezzo/optim.h"
#include "pretend/device.h"

namespace mezzo::amp {
namespace {

struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl() {
    in = register_module("in", torch::nn::Linear(12, 24));
    norm = register_module("norm", torch::nn::BatchNorm1d(24));
    out = register_module("out", torch::nn::Linear(24, 5));
  }
  at::Tensor forward(const at::Tensor& x) { return out(torch::relu(norm(in(x)))); }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(SmallNet);

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(SmallNet&)>;

template <typename Optimizer, typename Options>
MakeOptimizer maker(Options options) {
  return
      [options](SmallNet& net) { return std::make_unique<Optimizer>(net->parameters(), options); };
}
MakeOptimizer make_sgd() {
  return maker<optim::FusedSGD>(optim::FusedSGDOptions(0.05).momentum(0.9).max_grad_norm(0.5));
}
MakeOptimizer make_adam() {
  return maker<optim::FusedAdam>(optim::FusedAdamOptions(0.01).max_grad_norm(0.5));
}
MakeOptimizer make_lamb() {
  return maker<optim::FusedLAMB>(optim::FusedLAMBOptions(0.01));
}
MakeOptimizer make_novograd() {
  return maker<optim::FusedNovoGrad>(optim::FusedNovoGradOptions(0.01));
}
MakeOptimizer make_adagrad() {
  return maker<optim::FusedAdagrad>(optim::FusedAdagradOptions(0.01));
}
/// All of ours at one level, and the simplest at the others: what they do differs by neither.
std::vector<MakeOptimizer> optimizers_at(const std::string& level) {
  if (level != "O1") return {make_sgd()};
  return {make_sgd(), make_adam(), make_lamb(), make_novograd(), make_adagrad()};
}
MakeOptimizer make_foreign() {
  return maker<torch::optim::SGD>(torch::optim::SGDOptions(0.05).momentum(0.9));
}

/// A training whose inputs stay where they are, as a graph needs it.
struct StaticTraining {
  SmallNet net;
  std::unique_ptr<torch::optim::Optimizer> inner;
  std::optional<std::pair<Model<SmallNet>, Optimizer>> amp;
  at::Tensor x = at::zeros({16, 12}, pretend::device());
  at::Tensor y = at::zeros({16, 5}, pretend::device());
  at::Tensor factor = at::ones({}, pretend::device());

  StaticTraining(const Options& options, const MakeOptimizer& make) : net(made()) {
    inner = make(net);
    amp.emplace(initialize(net, *inner, options));
  }
  static SmallNet made() {
    torch::manual_seed(5);
    SmallNet net;
    net->to(pretend::device());
    return net;
  }
  Optimizer& optimizer() { return amp->second; }

  /// The inputs of a step; an infinite factor spoils it.
  void feed(int number, bool spoilt = false) {
    torch::manual_seed(static_cast<std::uint64_t>(100 + number));
    x.copy_(torch::randn({16, 12}, at::kCPU));
    y.copy_(torch::randn({16, 5}, at::kCPU));
    factor.fill_(spoilt ? INFINITY : 1);
    pretend::finish();
  }
  void step() {
    optimizer().zero_grad();
    const at::Tensor loss = torch::mse_loss(amp->first(x), y) * factor;
    scale_loss(loss, optimizer()).backward();
    optimizer().step();
  }
  std::vector<at::Tensor> values() {
    std::vector<at::Tensor> result;
    for (const auto& item : model_state_dict(amp->first))
      result.push_back(item.value().detach().cpu().clone());
    return result;
  }
};

void expect_same(StaticTraining& got, StaticTraining& expected) {
  const auto values = got.values();
  const auto others = expected.values();
  ASSERT_EQ(values.size(), others.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_TRUE(torch::equal(values[i], others[i])) << i;
  EXPECT_EQ(got.optimizer().loss_scale(), expected.optimizer().loss_scale());
  EXPECT_EQ(got.optimizer().applied_steps(), expected.optimizer().applied_steps());
  EXPECT_EQ(got.optimizer().skipped_steps(), expected.optimizer().skipped_steps());
}

class SilentSink final : public report::Sink {
 public:
  void write(const report::Event&) override {}
};

struct LevelCase {
  std::string level;
  bool defers;
};

Options dynamic_options(const LevelCase& row) {
  Options result;
  result.opt_level = row.level;
  result.defer_unscale = row.defers;
  result.loss_scale = "dynamic";
  result.init_loss_scale = 1024;
  result.growth_interval = 3;
  result.verbosity = 0;
  return result;
}

class StepOnDevice : public testing::TestWithParam<LevelCase> {
 protected:
  static Options options() { return dynamic_options(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Device, StepOnDevice,
                         testing::Values(LevelCase{"O1", false}, LevelCase{"O1", true},
                                         LevelCase{"O2", false}, LevelCase{"O2", true},
                                         LevelCase{"O4", false}, LevelCase{"O4", true},
                                         LevelCase{"O5", false}, LevelCase{"O5", true}),
                         [](const auto& row) {
                           return row.param.level + (row.param.defers ? "_deferred" : "");
                         });

TEST_P(StepOnDevice, IsCapturedWholeAndItsReplaysAgreeWithCalls) {
  for (const MakeOptimizer& make : optimizers_at(GetParam().level)) {
    StaticTraining ours(options(), make);
    StaticTraining called(options(), make);
    const auto step_both = [&](int number, bool spoilt, const std::function<void()>& step) {
      for (StaticTraining* each : {&ours, &called}) each->feed(number, spoilt);
      step();
      called.step();
      pretend::finish();
    };
    step_both(0, false, [&] { ours.step(); });
    step_both(1, true, [&] { ours.step(); });
    ours.feed(2, true);
    pretend::Graph graph;
    {
      const c10::StreamGuard side(pretend::new_stream());
      ours.optimizer().zero_grad();
      pretend::finish();
      graph.begin(side.current_stream());
      ours.step();
      graph.end();
    }
    EXPECT_EQ(ours.optimizer().applied_steps(), 1) << "a capture moves nothing";
    for (int number = 2; number < 8; ++number)
      step_both(number, number == 4 || number == 5, [&] { graph.replay(); });
    expect_same(ours, called);
    for (int number = 8; number < 11; ++number)
      step_both(number, number == 9, [&] { ours.step(); });
    for (int number = 11; number < 13; ++number) step_both(number, false, [&] { graph.replay(); });
    expect_same(ours, called);
    EXPECT_EQ(ours.optimizer().skipped_steps(), 4);
  }
}

TEST_P(StepOnDevice, ANetworkThatIsCalledBetweenReplaysHasTheirWeights) {
  StaticTraining ours(options(), make_sgd());
  StaticTraining called(options(), make_sgd());
  for (StaticTraining* each : {&ours, &called}) {
    each->feed(0);
    each->step();
    each->feed(1);
  }
  pretend::Graph graph;
  {
    const c10::StreamGuard side(pretend::new_stream());
    ours.optimizer().zero_grad();
    pretend::finish();
    graph.begin(side.current_stream());
    ours.step();
    graph.end();
  }
  for (int replay = 0; replay < 3; ++replay) {
    graph.replay();
    called.step();
    pretend::finish();
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(torch::equal(ours.amp->first(ours.x).cpu(), called.amp->first(called.x).cpu()));
  }
}

TEST_P(StepOnDevice, TheHostWaitsForNothing) {
  for (const MakeOptimizer& make : optimizers_at(GetParam().level)) {
    StaticTraining ours(options(), make);
    Ema ema(ours.amp->first, 0.9);
    SilentSink sink;
    auto log = insight::watch(ours.amp->first, ours.optimizer(), sink, {.every = 50});
    const auto step = [&] {
      ours.step();
      ema.update();
      log.step();
    };
    for (int number = 0; number < 4; ++number) {
      ours.feed(number, number == 2);
      step();
    }
    ours.feed(4);
    const pretend::Watch watch;
    for (int number = 0; number < 3; ++number) step();
    EXPECT_EQ(watch.counts().waits, 0) << testing::PrintToString(watch.stacks());
    EXPECT_EQ(watch.counts().scalars, 0);
    EXPECT_LE(watch.counts().event_waits, 3) << "the host is more than one step ahead";
  }
}

TEST_P(StepOnDevice, AForeignOptimizerReadsOneNumber) {
  StaticTraining ours(options(), make_foreign());
  for (int number = 0; number < 3; ++number) {
    ours.feed(number, number == 1);
    ours.step();
  }
  ours.feed(3);
  const pretend::Watch watch;
  ours.step();
  EXPECT_EQ(watch.counts().waits, 1) << testing::PrintToString(watch.stacks());
  EXPECT_EQ(watch.counts().scalars, 1);
}

TEST_P(StepOnDevice, WhatTakesTheHostIsRefusedAndTheCaptureGoesOn) {
  StaticTraining ours(options(), make_foreign());
  ours.feed(0);
  ours.step();
  const c10::StreamGuard side(pretend::new_stream());
  ours.optimizer().zero_grad();
  pretend::finish();
  pretend::Graph graph;
  graph.begin(side.current_stream());
  try {
    ours.step();
    ADD_FAILURE() << "the host would have to decide";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("give initialize a fused optimizer"));
  }
  EXPECT_THROW(ours.optimizer().loss_scale(), Error);
  EXPECT_NO_THROW(graph.end());
}

}  // namespace
}  // namespace mezzo::amp
