// Weights and activations that are used many times: their gradients are added up in float at every
// level, whoever computes the products.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "amp/training.h"
#include "mezzo/hardware.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

constexpr std::int64_t kMany = 4096;

struct Setting {
  std::string level;
  ComputeMode computed;
  bool deferred;
};

class ManyUses : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override { set_modes(GetParam().computed); }
  void TearDown() override { set_modes(ComputeMode::kAuto); }

  static void set_modes(ComputeMode mode) {
    set_compute_mode(at::kHalf, mode);
    set_compute_mode(at::kBFloat16, mode);
  }

  /// The gradients of the network's parameters, as the optimizer sees them, by a loss of ours.
  template <typename Net, typename Loss>
  static std::vector<at::Tensor> gradients(Net net, Loss loss, const std::string& level,
                                           bool deferred) {
    optim::FusedSGD sgd(net->parameters(), optim::FusedSGDOptions(1.0));
    std::vector<at::Tensor> before;
    for (const at::Tensor& each : net->parameters())
      before.push_back(each.detach().to(at::kDouble).clone());
    Options options = at_level(level);
    options.init_loss_scale = 1;
    options.defer_unscale = deferred;
    auto [model, optimizer] = initialize(net, sgd, options);
    scale_loss(loss(model), optimizer).backward();
    const StepResult result = optimizer.step();
    EXPECT_TRUE(result.applied()) << result.reason();
    // A step of rate 1 moves by the gradient.
    std::vector<at::Tensor> moved;
    const auto values = model_state_dict(model);
    std::size_t i = 0;
    for (const auto& item : net->named_parameters())
      moved.push_back(before[i++] - values[item.key()].to(at::kDouble));
    return moved;
  }

  /// `make` gives the same network each time.
  template <typename Make, typename Loss>
  static void expect_float(Make make, Loss loss, double tolerance) {
    const auto expected = gradients(make(), loss, "O0", false);
    const auto got = gradients(make(), loss, GetParam().level, GetParam().deferred);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_LT(largest(got[i] - expected[i]), tolerance * largest(expected[i]))
          << "parameter " << i << " of " << expected[i].sizes();
  }

  static double largest(const at::Tensor& values) { return values.abs().max().item<double>(); }
};

INSTANTIATE_TEST_SUITE_P(
    Amp, ManyUses,
    testing::Values(
        Setting{"O1", ComputeMode::kNative, false}, Setting{"O1", ComputeMode::kEmulated, false},
        Setting{"O2", ComputeMode::kNative, false}, Setting{"O2", ComputeMode::kEmulated, false},
        Setting{"O3", ComputeMode::kNative, false}, Setting{"O4", ComputeMode::kNative, false},
        Setting{"O4", ComputeMode::kNative, true}, Setting{"O4", ComputeMode::kEmulated, false},
        Setting{"O5", ComputeMode::kNative, false}, Setting{"O5", ComputeMode::kNative, true},
        Setting{"O5", ComputeMode::kEmulated, false}),
    [](const testing::TestParamInfo<Setting>& setting) {
      return setting.param.level +
             (setting.param.computed == ComputeMode::kNative ? "Native" : "Emulated") +
             (setting.param.deferred ? "Deferred" : "");
    });

struct CellInLoopImpl : torch::nn::Module {
  CellInLoopImpl() {
    torch::manual_seed(3);
    cell = register_module("cell", torch::nn::LSTMCell(4, 8));
  }
  at::Tensor forward(const at::Tensor& x) {
    std::tuple<at::Tensor, at::Tensor> state{torch::zeros({x.size(1), 8}, x.options()),
                                             torch::zeros({x.size(1), 8}, x.options())};
    at::Tensor sum;
    for (std::int64_t t = 0; t < x.size(0); ++t) {
      state = cell(x[t], state);
      const at::Tensor part = std::get<0>(state).to(at::kFloat);
      sum = sum.defined() ? sum + part : part;
    }
    return sum / x.size(0);
  }
  torch::nn::LSTMCell cell{nullptr};
};
TORCH_MODULE(CellInLoop);

TEST_P(ManyUses, OfARecurrentCellInALoop) {
  torch::manual_seed(5);
  const at::Tensor x = torch::rand({1500, 2, 4});
  expect_float([] { return CellInLoop(); }, [&](auto& model) { return model(x).sum(); }, 0.03);
}

struct LineInLoopImpl : torch::nn::Module {
  LineInLoopImpl() {
    torch::manual_seed(3);
    line = register_module("line", torch::nn::Linear(4, 4));
  }
  at::Tensor forward(const at::Tensor& x) {
    std::vector<at::Tensor> parts;
    for (std::int64_t i = 0; i < x.size(0); ++i) parts.push_back(line(x.slice(0, i, i + 1)));
    return torch::cat(parts);
  }
  torch::nn::Linear line{nullptr};
};
TORCH_MODULE(LineInLoop);

TEST_P(ManyUses, OfALayerInALoop) {
  const at::Tensor x = torch::ones({kMany, 4});
  expect_float([] { return LineInLoop(); }, [&](auto& model) { return model(x).sum() / kMany; },
               0.02);
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    torch::manual_seed(3);
    embed = register_module("embed", torch::nn::Embedding(16, 8));
  }
  at::Tensor forward(const at::Tensor& words) {
    return torch::matmul(torch::tanh(embed(words)), embed->weight.t());
  }
  torch::nn::Embedding embed{nullptr};
};
TORCH_MODULE(Tied);

// The most frequent word of a language, in 8,192 positions.
TEST_P(ManyUses, OfAFrequentWordInATiedTable) {
  const at::Tensor words = torch::zeros({8192}, at::kLong);
  words.slice(0, 0, 8192, 4) = torch::arange(2048).remainder(16);
  expect_float([] { return Tied(); },
               [&](auto& model) {
                 return torch::nn::functional::cross_entropy(model(words), words.roll(-1));
               },
               0.03);
}

struct MemoryImpl : torch::nn::Module {
  MemoryImpl() {
    torch::manual_seed(3);
    encode = register_module("encode", torch::nn::Linear(4, 4));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor memory = torch::relu(encode(x));
    std::vector<at::Tensor> looks;
    for (std::int64_t i = 0; i < kMany; ++i) looks.push_back(memory * 1.0);
    return torch::stack(looks);
  }
  torch::nn::Linear encode{nullptr};
};
TORCH_MODULE(Memory);

TEST_P(ManyUses, OfAnActivation) {
  const at::Tensor x = torch::ones({1, 4});
  expect_float([] { return Memory(); }, [&](auto& model) { return model(x).sum() / kMany; }, 0.02);
}

}  // namespace
}  // namespace mezzo::amp
