// Whole trainings with everything on the device, beside the same training on the host: networks,
// levels, optimizers, a skip, a resumed run, averages, what is watched.
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>

#include "bridge/device.h"
#include "mezzo/amp.h"
#include "mezzo/checkpoint.h"
#include "mezzo/ema.h"
#include "mezzo/insight_watch.h"
#include "mezzo/optim.h"
#include "mezzo/report.h"
#include "pretend/device.h"

namespace mezzo::amp {
namespace {

using Optimizers = std::unique_ptr<torch::optim::Optimizer>;

struct PerceptronImpl : torch::nn::Module {
  PerceptronImpl() {
    in = register_module("in", torch::nn::Linear(12, 24));
    norm = register_module("norm", torch::nn::BatchNorm1d(24));
    out = register_module("out", torch::nn::Linear(24, 5));
  }
  at::Tensor forward(const at::Tensor& x) { return out(torch::relu(norm(in(x)))); }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Perceptron);

struct ConvolutionsImpl : torch::nn::Module {
  ConvolutionsImpl() {
    first =
        register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(8));
    second =
        register_module("second", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1)));
    out = register_module("out", torch::nn::Linear(8, 5));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor image = x.view({-1, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor y = torch::relu(norm(first(image)));
    return out((torch::relu(second(y)) + y).mean({2, 3}));
  }
  torch::nn::Conv2d first{nullptr}, second{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear out{nullptr};
};
TORCH_MODULE(Convolutions);

struct RecurrentImpl : torch::nn::Module {
  RecurrentImpl() {
    lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(3, 8).batch_first(true)));
    out = register_module("out", torch::nn::Linear(8, 5));
  }
  at::Tensor forward(const at::Tensor& x) {
    return out(std::get<0>(lstm(x.view({-1, 4, 3}))).select(1, 3));
  }
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear out{nullptr};
};
TORCH_MODULE(Recurrent);

struct AttentiveImpl : torch::nn::Module {
  AttentiveImpl() {
    in = register_module("in", torch::nn::Linear(3, 24));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
    out = register_module("out", torch::nn::Linear(8, 5));
  }
  at::Tensor forward(const at::Tensor& x) {
    const std::vector<at::Tensor> qkv = in(x.view({-1, 1, 4, 3})).chunk(3, -1);
    return out(norm(at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])).mean(2).squeeze(1));
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(Attentive);

Optimizers make_optimizer(const std::string& name, const std::vector<at::Tensor>& parameters) {
  if (name == "sgd") {
    return std::make_unique<optim::FusedSGD>(parameters,
                                             optim::FusedSGDOptions(0.05).momentum(0.9));
  }
  if (name == "adagrad") {
    return std::make_unique<optim::FusedAdagrad>(parameters, optim::FusedAdagradOptions(0.05));
  }
  if (name == "lamb") {
    return std::make_unique<optim::FusedLAMB>(parameters, optim::FusedLAMBOptions(0.01));
  }
  if (name == "novograd") {
    return std::make_unique<optim::FusedNovoGrad>(parameters, optim::FusedNovoGradOptions(0.01));
  }
  if (name == "torch") {
    return std::make_unique<torch::optim::AdamW>(parameters,
                                                 torch::optim::AdamWOptions(0.01).eps(1e-4));
  }
  return std::make_unique<optim::FusedAdam>(parameters, optim::FusedAdamOptions(0.01));
}

Options options_of(const std::string& level) {
  Options options;
  options.opt_level = level;
  options.loss_scale = "dynamic";
  options.init_loss_scale = 1024;
  options.growth_interval = 3;
  options.verbosity = 0;
  return options;
}

template <typename Net>
struct Training {
  Net net;
  Optimizers optimizer;
  std::optional<std::pair<Model<Net>, Optimizer>> amp;

  Training(const at::Device& device, const Options& options, const std::string& name) {
    torch::manual_seed(5);
    net = Net();
    net->to(device);
    optimizer = make_optimizer(name, net->parameters());
    amp.emplace(initialize(net, *optimizer, options));
  }
  at::Device device() const { return amp->first.module()->parameters()[0].device(); }

  at::Tensor step(int number, double factor = 1) {
    const at::Tensor generator = at::arange(16 * 17, at::TensorOptions(at::kCPU).dtype(at::kFloat));
    const at::Tensor numbers = ((generator * 0.7 + number).sin()).view({16, 17});
    const at::Tensor both = numbers.pin_memory().to(device(), /*non_blocking=*/true);
    amp->second.zero_grad();
    const at::Tensor loss =
        torch::mse_loss(amp->first(both.narrow(1, 0, 12)).to(at::kFloat), both.narrow(1, 12, 5)) *
        factor;
    scale_loss(loss, amp->second).backward();
    amp->second.step();
    return loss.detach();
  }
  std::vector<at::Tensor> values() {
    std::vector<at::Tensor> result;
    for (const auto& item : model_state_dict(amp->first)) {
      result.push_back(item.value().detach().cpu().to(at::kDouble).clone());
    }
    return result;
  }
};

constexpr double kInfinite = std::numeric_limits<double>::infinity();

template <typename Net>
void expect_same_course(const std::string& level, const std::string& optimizer, unsigned seed) {
  pretend::seed(seed);
  // AdamW on float16 weights alone goes a way of its own, on the host too.
  const bool own_way = level == "O3" && optimizer == "torch";
  Training<Net> host(at::kCPU, options_of(own_way ? level : "O0"), optimizer);
  Training<Net> ours(pretend::device(), options_of(level), optimizer);
  const double tolerance = level == "O0" ? 1e-4 : level == "O1" || level == "O2" ? 0.01 : 0.05;
  for (int step = 0; step < 7; ++step) {
    const double expected = host.step(step).template item<double>();
    const double got = ours.step(step).template item<double>();
    EXPECT_NEAR(got, expected, tolerance * std::max(1.0, expected))
        << level << ' ' << optimizer << ' ' << step;
  }
  const at::Device where = ours.device();
  EXPECT_TRUE(where.is_cuda());
}

class DeviceCourse : public testing::TestWithParam<std::tuple<std::string, std::string>> {};
INSTANTIATE_TEST_SUITE_P(
    Device, DeviceCourse,
    testing::Combine(testing::Values("O0", "O1", "O2", "O3", "O4", "O5"),
                     testing::Values("adam", "sgd", "adagrad", "lamb", "novograd", "torch")),
    [](const auto& row) { return std::get<0>(row.param) + "_" + std::get<1>(row.param); });

TEST_P(DeviceCourse, OfAPerceptronIsTheHosts) {
  const auto& [level, optimizer] = GetParam();
  expect_same_course<Perceptron>(level, optimizer, 3);
}

// LibTorch's steps take over where ours were refused; the low copies of weights are theirs too.
class DeviceCourseOfLibTorch : public DeviceCourse {
 protected:
  DeviceCourseOfLibTorch() { bridge::choose_kernels(at::kCUDA, nullptr); }
  ~DeviceCourseOfLibTorch() override { bridge::choose_usual_kernels(at::kCUDA); }
};
INSTANTIATE_TEST_SUITE_P(Device, DeviceCourseOfLibTorch,
                         testing::Combine(testing::Values("O0", "O1", "O2", "O3", "O4", "O5"),
                                          testing::Values("adam", "sgd", "adagrad")),
                         [](const auto& row) {
                           return std::get<0>(row.param) + "_" + std::get<1>(row.param);
                         });

TEST_P(DeviceCourseOfLibTorch, OfAPerceptronIsTheHosts) {
  const auto& [level, optimizer] = GetParam();
  expect_same_course<Perceptron>(level, optimizer, 3);
}

class DeviceNetwork : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Device, DeviceNetwork, testing::Values("O0", "O1", "O2", "O3", "O4", "O5"),
                         [](const auto& row) { return row.param; });

TEST_P(DeviceNetwork, OfConvolutionsInChannelsLastTrains) {
  expect_same_course<Convolutions>(GetParam(), "adam", 1);
}
TEST_P(DeviceNetwork, ThatIsRecurrentTrains) {
  expect_same_course<Recurrent>(GetParam(), "adam", 2);
}
TEST_P(DeviceNetwork, WithAttentionTrains) {
  expect_same_course<Attentive>(GetParam(), "adam", 4);
}

TEST_P(DeviceNetwork, HasTheSameWeightsWhenWorkRunsInAnotherOrder) {
  std::vector<std::vector<at::Tensor>> ends;
  for (const unsigned seed : {0U, 7U, 23U}) {
    pretend::seed(seed);
    Training<Perceptron> training(pretend::device(), options_of(GetParam()), "adam");
    for (int step = 0; step < 6; ++step) training.step(step, step == 2 ? kInfinite : 1);
    ends.push_back(training.values());
  }
  for (std::size_t i = 0; i < ends[0].size(); ++i) {
    EXPECT_TRUE(at::equal(ends[0][i], ends[1][i])) << i;
    EXPECT_TRUE(at::equal(ends[0][i], ends[2][i])) << i;
    EXPECT_TRUE(ends[0][i].isfinite().all().item<bool>()) << i;
  }
}

TEST_P(DeviceNetwork, GoesOnFromACheckpointBitByBit) {
  pretend::seed(11);
  Training<Perceptron> whole(pretend::device(), options_of(GetParam()), "adam");
  for (int step = 0; step < 4; ++step) whole.step(step, step == 1 ? kInfinite : 1);
  const std::string file = (std::filesystem::temp_directory_path() / "course.pt").string();
  save_checkpoint(file, whole.amp->first, whole.amp->second);
  for (int step = 4; step < 7; ++step) whole.step(step);

  Training<Perceptron> resumed(pretend::device(), options_of(GetParam()), "adam");
  load_checkpoint(file, resumed.amp->first, resumed.amp->second);
  for (int step = 4; step < 7; ++step) resumed.step(step);
  const std::vector<at::Tensor> expected = whole.values();
  const std::vector<at::Tensor> got = resumed.values();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
}

TEST_P(DeviceNetwork, TrainsOnTheSecondDevice) {
  pretend::seed(5);
  Training<Perceptron> first(pretend::device(0), options_of(GetParam()), "adam");
  Training<Perceptron> second(pretend::device(1), options_of(GetParam()), "adam");
  for (int step = 0; step < 4; ++step) {
    first.step(step);
    second.step(step);
  }
  const std::vector<at::Tensor> expected = first.values();
  const std::vector<at::Tensor> got = second.values();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
}

struct NoSink final : report::Sink {
  void write(const report::Event&) override {}
};

std::string stacks_of(const pretend::Watch& watch) {
  std::string text;
  for (const std::string& stack : watch.stacks()) text += stack + "\n\n";
  return text;
}

TEST_P(DeviceNetwork, IsAveragedAndWatchedWithoutAWait) {
  if (GetParam() == "O0" || GetParam() == "O3") GTEST_SKIP() << "levels without a loss scale";
  pretend::seed(0);
  Training<Perceptron> training(pretend::device(), options_of(GetParam()), "adam");
  Ema average(training.amp->first, 0.9);
  NoSink sink;
  auto watch = insight::watch(training.amp->first, training.amp->second, sink, {.every = 100});
  for (int step = 0; step < 3; ++step) {
    training.step(step);
    average.update();
    watch.step();
  }
  const pretend::Watch waits;
  for (int step = 3; step < 8; ++step) {
    training.step(step, step == 5 ? kInfinite : 1);
    average.update();
    watch.step();
  }
  EXPECT_EQ(waits.counts().waits, 0) << stacks_of(waits);
}

}  // namespace
}  // namespace mezzo::amp
