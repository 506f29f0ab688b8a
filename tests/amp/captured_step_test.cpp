// Steps in the capture of a graph. The kernels compiled for the processor compute at once, also
// where their table says that a graph is captured: so a captured step is its own first replay, and
// everything but the order of its work can be seen here. Captures that run later are tested on the
// pretend device (tests/device).
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <string>

#include "amp/undecided_training.h"
#include "mezzo/ema.h"
#include "mezzo/error.h"
#include "mezzo/grad_scaler.h"
#include "mezzo/messages.h"
#include "optim/step_context.h"
#include "support/cuda_places.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;

std::uint64_t the_capture = 0;
std::uint64_t captures = 0;
int copies = 0;
int copies_under_flags = 0;
std::int64_t copied_tensors = 0;
int scale_updates = 0;

/// The kernels compiled for the processor, with a capture that a test says is under way, and with
/// counters of some launches.
const kernels::cuda::Interface& kernels_with_captures() {
  using namespace kernels;
  static const cuda::Interface table = [] {
    cuda::Interface result = *testing_cuda::emulation();
    result.capture = [](cuda::Stream) { return the_capture; };
    result.copy = [](cuda::List* list, const Input* in, const Output* out, std::int64_t count,
                     cuda::Stream stream) {
      ++copies;
      return testing_cuda::emulation()->copy(list, in, out, count, stream);
    };
    result.copy_if = [](cuda::List* list, const Input* in, const Output* out, std::int64_t count,
                        const float* flag, cuda::Stream stream) {
      ++copies_under_flags;
      copied_tensors = count;
      return testing_cuda::emulation()->copy_if(list, in, out, count, flag, stream);
    };
    result.update_scale = [](float* scale, std::int32_t* unskipped, std::int32_t* stuck,
                             const float* found_inf, const ScaleRule* rule, int device,
                             cuda::Stream stream) {
      ++scale_updates;
      return testing_cuda::emulation()->update_scale(scale, unskipped, stuck, found_inf, rule,
                                                     device, stream);
    };
    return result;
  }();
  return table;
}

/// While it lives, a graph is captured.
class Capture {
 public:
  Capture() { the_capture = ++captures; }
  ~Capture() { the_capture = 0; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
};

class CapturedStep : public testing::TestWithParam<std::pair<std::string, bool>> {
 protected:
  void SetUp() override { bridge::choose_kernels(at::kCPU, &kernels_with_captures()); }
  void TearDown() override {
    the_capture = 0;
    bridge::choose_usual_kernels(at::kCPU);
  }
  static Options options() {
    Options result;
    result.opt_level = GetParam().first;
    result.defer_unscale = GetParam().second;
    result.loss_scale = "dynamic";
    result.init_loss_scale = 1024;
    result.growth_interval = 3;
    result.verbosity = 1;
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Amp, CapturedStep,
                         testing::Values(std::pair{"O1", false}, std::pair{"O1", true},
                                         std::pair{"O2", false}, std::pair{"O2", true},
                                         std::pair{"O4", false}, std::pair{"O5", false},
                                         std::pair{"O5", true}),
                         [](const auto& row) {
                           return row.param.first + (row.param.second ? "_deferred" : "");
                         });

void expect_same_training(UndecidedTraining& got, UndecidedTraining& expected) {
  const auto values = got.values();
  const auto others = expected.values();
  ASSERT_EQ(values.size(), others.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_TRUE(torch::equal(values[i], others[i])) << i;
  EXPECT_EQ(got.optimizer().loss_scale(), expected.optimizer().loss_scale());
  EXPECT_EQ(got.optimizer().applied_steps(), expected.optimizer().applied_steps());
  EXPECT_EQ(got.optimizer().skipped_steps(), expected.optimizer().skipped_steps());
  EXPECT_EQ(got.optimizer().empty_steps(), expected.optimizer().empty_steps());
}

/// The error of a call; empty if it went well.
std::string error_in(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_P(CapturedStep, AgreesWithStepsThatAreCalledBeforeAndAfterIt) {
  UndecidedTraining ours(at::kCPU, options());
  UndecidedTraining called(at::kCPU, options());
  for (int step = 0; step < 11; ++step) {
    const double factor = step == 1 || step == 4 || step == 8 ? kInfinity : 1;
    called.step(step, factor);
    std::optional<Capture> capture;
    if (step >= 3 && step < 7) capture.emplace();
    const StepResult result = ours.step(step, factor);
    capture.reset();
    EXPECT_EQ(result.skipped(), factor != 1) << step;
  }
  expect_same_training(ours, called);
  EXPECT_EQ(ours.optimizer().applied_steps(), 8);
  EXPECT_EQ(ours.optimizer().skipped_steps(), 3);
}

TEST_P(CapturedStep, TellsTheHostNothing) {
  std::string texts;
  const MessageSink before = set_message_sink([&](const std::string& text) { texts += text; });
  UndecidedTraining ours(at::kCPU, options());
  ours.step(0);
  {
    const Capture capture;
    for (int step = 1; step < 4; ++step) ours.step(step, kInfinity);
  }
  ours.step(4);
  set_message_sink(before);
  EXPECT_THAT(texts, testing::Not(HasSubstr("skipped")));
  EXPECT_THAT(texts, testing::Not(HasSubstr("got no gradient")));
  EXPECT_EQ(ours.optimizer().skipped_steps(), 3);
  EXPECT_EQ(ours.optimizer().applied_steps(), 2);
  EXPECT_EQ(ours.optimizer().loss_scale(), 128);
}

TEST_P(CapturedStep, CountsOnBehindACountThatWasLoaded) {
  UndecidedTraining ours(at::kCPU, options());
  ours.step(0);
  {
    const Capture capture;
    ours.step(1);
    ours.step(2, kInfinity);
  }
  std::stringstream file;
  torch::serialize::OutputArchive out;
  out << ours.optimizer();
  out.save_to(file);
  ours.step(3);
  EXPECT_EQ(ours.optimizer().applied_steps(), 3);
  torch::serialize::InputArchive in;
  in.load_from(file);
  in >> ours.optimizer();
  EXPECT_EQ(ours.optimizer().applied_steps(), 2);
  EXPECT_EQ(ours.optimizer().skipped_steps(), 1);
}

TEST_P(CapturedStep, IsRefusedBeforeTheFirstOrdinaryOneAndChangesNothingThen) {
  UndecidedTraining ours(at::kCPU, options());
  UndecidedTraining called(at::kCPU, options());
  {
    const Capture capture;
    EXPECT_THAT(error_in([&] { ours.step(0, kInfinity); }),
                HasSubstr("make one ordinary step before the capture"));
  }
  called.net->norm->reset_running_stats();
  ours.net->norm->reset_running_stats();  // the forward pass of the step that was refused
  for (int step = 1; step < 4; ++step) {
    ours.step(step);
    called.step(step);
  }
  expect_same_training(ours, called);
}

TEST_P(CapturedStep, NumbersAreNotReadInACapture) {
  UndecidedTraining ours(at::kCPU, options());
  Ema ema(ours.amp->first, 0.5);
  ours.step(0);
  {
    const Capture capture;
    Optimizer& optimizer = ours.optimizer();
    EXPECT_THAT(error_in([&] { optimizer.applied_steps(); }), HasSubstr("after a replay"));
    EXPECT_THAT(error_in([&] { optimizer.skipped_steps(); }), HasSubstr("after a replay"));
    EXPECT_THAT(error_in([&] { optimizer.loss_scale(); }), HasSubstr("after a replay"));
    EXPECT_THAT(error_in([&] { optimizer.set_loss_scale(2); }), HasSubstr("after a replay"));
    EXPECT_THAT(error_in([&] { ema.update(); }), HasSubstr("after each replay"));
  }
  EXPECT_EQ(ours.optimizer().applied_steps(), 1);
  EXPECT_TRUE(ema.update());
}

TEST_P(CapturedStep, IsRefusedWhereItsLossWasNotCaptured) {
  UndecidedTraining ours(at::kCPU, options());
  UndecidedTraining called(at::kCPU, options());
  for (UndecidedTraining* each : {&ours, &called}) each->step(0);
  const at::Tensor x = torch::ones({16, 12});
  ours.optimizer().zero_grad();
  called.optimizer().zero_grad();
  scale_loss(ours.amp->first(x).sum(), ours.optimizer()).backward();
  scale_loss(called.amp->first(x).sum(), called.optimizer()).backward();
  {
    const Capture capture;
    EXPECT_THAT(error_in([&] { ours.optimizer().step(); }),
                HasSubstr("capture scale_loss, backward() and step() together"));
    EXPECT_THAT(
        error_in([&] { scale_loss(ours.amp->first(x).sum(), ours.optimizer()).backward(); }),
        HasSubstr("capture scale_loss, backward() and step() together"));
  }
  EXPECT_TRUE(ours.optimizer().step().applied());
  EXPECT_TRUE(called.optimizer().step().applied());
  EXPECT_EQ(ours.optimizer().applied_steps(), called.optimizer().applied_steps());
}

TEST_P(CapturedStep, AStepThatWasLeftOutOfItsCaptureIsRefusedUntilItsLossIsGone) {
  UndecidedTraining ours(at::kCPU, options());
  ours.step(0);
  const at::Tensor x = torch::ones({16, 12});
  ours.optimizer().zero_grad();
  {
    const Capture capture;
    scale_loss(ours.amp->first(x).sum(), ours.optimizer()).backward();
  }
  EXPECT_THAT(error_in([&] { ours.optimizer().step(); }), HasSubstr("its step was not"));
  EXPECT_TRUE(ours.step(1).applied());  // begins with zero_grad()
}

TEST_P(CapturedStep, GradientsFromBeforeTheCaptureAreRefused) {
  UndecidedTraining ours(at::kCPU, options());
  const at::Tensor x = torch::ones({16, 12});
  const auto backward = [&] { scale_loss(ours.amp->first(x).sum(), ours.optimizer()).backward(); };
  ours.step(0);
  if (!options().defer_unscale) {
    const Capture capture;
    EXPECT_THAT(error_in(backward), HasSubstr("call zero_grad()"));
  }
  ours.optimizer().zero_grad(/*set_to_none=*/false);
  {
    const Capture capture;
    EXPECT_THAT(error_in(backward), HasSubstr("call zero_grad()"));
    ours.optimizer().zero_grad(/*set_to_none=*/false);
    backward();
    ours.optimizer().step();
  }
  EXPECT_EQ(ours.optimizer().applied_steps(), 2);
}

TEST_P(CapturedStep, WhatTakesTheHostIsRefusedInASentenceThatSaysWhatWouldWork) {
  const auto refusal = [&](const Options& asked) {
    UndecidedTraining ours(at::kCPU, asked);
    ours.step(0);
    const Capture capture;
    return error_in([&] { ours.step(1); });
  };
  Options generators = options();
  generators.protect_rng = true;
  EXPECT_THAT(refusal(generators), HasSubstr("leave Options::protect_rng off"));
  Options explained = options();
  explained.explain_skips = 1;
  EXPECT_THAT(refusal(explained), HasSubstr("leave Options::explain_skips at 0"));

  UndecidedTraining ours(at::kCPU, options());
  ours.step(0);
  ours.optimizer().zero_grad();
  const Capture capture;
  EXPECT_THAT(error_in([&] { ours.optimizer().step([] { return at::Tensor(); }); }),
              HasSubstr("without a closure"));
}

TEST_P(CapturedStep, AnOptimizerThatTheHostStepsIsRefused) {
  Net net = UndecidedTraining::made_on(at::kCPU);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05));
  auto [model, optimizer] = initialize(net, sgd, options());
  const at::Tensor x = torch::ones({16, 12});
  scale_loss(model(x).sum(), optimizer).backward();
  optimizer.step();
  optimizer.zero_grad();
  const Capture capture;
  EXPECT_THAT(error_in([&] { scale_loss(model(x).sum(), optimizer).backward(); }),
              HasSubstr("give initialize a fused optimizer"));
}

TEST_P(CapturedStep, ASplitMasterThatWasGivenMemoryIsRefused) {
  Options o5 = options();
  o5.opt_level = "O5";
  o5.split_masters = true;
  UndecidedTraining ours(at::kCPU, o5);
  ours.step(0);
  ours.optimizer().zero_grad();
  master_params(ours.optimizer());
  {
    const Capture capture;
    EXPECT_THAT(error_in([&] { ours.step(1); }), HasSubstr("split masters"));
  }
  ours.step(1);
  {
    const Capture capture;
    ours.step(2);
  }
  EXPECT_EQ(ours.optimizer().applied_steps(), 3);
}

TEST_P(CapturedStep, AParameterWithoutAStateIsRefusedByTheOptimizerItself) {
  const auto weight = [] { return torch::ones({4}).set_requires_grad(true); };
  const std::vector<at::Tensor> weights{weight(), weight()};
  optim::FusedAdam adam(weights, optim::FusedAdamOptions(0.1));
  const auto step = [&] {
    for (const at::Tensor& each : weights) each.mutable_grad() = torch::ones({4});
    adam.step();
  };
  weights[0].mutable_grad() = torch::ones({4});
  adam.step();
  {
    const Capture capture;
    EXPECT_THAT(error_in(step), HasSubstr("parameter 1 of group 0"));
  }
  EXPECT_FLOAT_EQ(weights[1].sum().item<float>(), 4);
  step();
  const Capture capture;
  step();
}

TEST_P(CapturedStep, AGradScalersLossesMayBeCapturedAndItsStepsCalled) {
  const at::Tensor weight = torch::ones({4}).set_requires_grad(true);
  torch::optim::SGD sgd(std::vector<at::Tensor>{weight}, torch::optim::SGDOptions(0.125));
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  scaler.scale((weight * 1.0).sum()).backward();
  scaler.step(sgd);
  scaler.update();
  sgd.zero_grad();
  {
    const Capture capture;
    scaler.scale((weight * 1.0).sum()).backward();
    EXPECT_THAT(error_in([&] { scaler.step(sgd); }), HasSubstr("after each replay"));
  }
  for (int replay = 0; replay < 3; ++replay) {
    if (replay > 0) weight.grad().fill_(replay == 1 ? INFINITY : 4);
    EXPECT_EQ(scaler.step(sgd).applied(), replay != 1);
    scaler.update();
  }
  EXPECT_EQ(scaler.get_scale(), 8);
}

TEST_P(CapturedStep, OneLaunchGivesAllBatchNormsBackAndOneMovesTheScale) {
  UndecidedTraining ours(at::kCPU, options());
  ours.step(0);
  copies_under_flags = scale_updates = copies = 0;
  const auto before = ours.values();
  EXPECT_TRUE(ours.step(1, kInfinity).skipped());
  EXPECT_EQ(copies_under_flags, 1);
  EXPECT_EQ(copied_tensors, 3);
  EXPECT_EQ(scale_updates, 1);
  // At levels with masters the gradients of four weights (and their masters') become float
  // together.
  EXPECT_EQ(copies,
            options().opt_level > "O1" && options().opt_level != "O4" && !options().defer_unscale
                ? 1
                : 0);
  const auto after = ours.values();
  for (std::size_t i = 0; i < after.size(); ++i)
    EXPECT_TRUE(torch::equal(after[i], before[i])) << i;
}

}  // namespace
}  // namespace mezzo::amp
