// Networks that keep_float makes float in part: whole, at their beginning, in the middle.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "amp/training.h"
#include "mezzo/amp.h"

namespace mezzo::amp {
namespace {

using LayerMaker = std::function<torch::nn::Sequential()>;

/// A network of three parts "0", "1" and "2", with the input that it takes.
struct Layered {
  std::string name;
  LayerMaker make;
  at::Tensor input;
};

struct MiddleLstmImpl : torch::nn::Module {
  MiddleLstmImpl() : lstm(register_module("lstm", torch::nn::LSTM(8, 8))) {}
  at::Tensor forward(const at::Tensor& x) { return std::get<0>(lstm(x.unsqueeze(1))).squeeze(1); }
  torch::nn::LSTM lstm;
};
TORCH_MODULE(MiddleLstm);

template <typename Middle>
Layered layered(const std::string& name, Middle (*middle)()) {
  return {name,
          [middle] {
            torch::manual_seed(3);
            return torch::nn::Sequential(torch::nn::Linear(4, 8), middle(),
                                         torch::nn::Linear(8, 2));
          },
          inputs()};
}

std::vector<Layered> layered_networks() {
  namespace nn = torch::nn;
  return {
      layered<nn::Linear>("linear", [] { return nn::Linear(8, 8); }),
      layered<nn::LayerNorm>("layer norm", [] { return nn::LayerNorm(nn::LayerNormOptions({8})); }),
      layered<nn::BatchNorm1d>("batch norm", [] { return nn::BatchNorm1d(8); }),
      layered<nn::PReLU>("prelu", [] { return nn::PReLU(); }),
      layered<MiddleLstm>("lstm", [] { return MiddleLstm(); })};
}

/// Results and gradients of one pass in float64.
struct FloatPass {
  at::Tensor result;
  std::vector<at::Tensor> gradients;
};

FloatPass wide_pass(const Layered& net) {
  auto wide = net.make();
  wide->to(at::kDouble);
  const at::Tensor result = wide->forward(net.input.to(at::kDouble));
  result.square().mean().backward();
  FloatPass pass{result.detach(), {}};
  for (const at::Tensor& parameter : wide->parameters()) pass.gradients.push_back(parameter.grad());
  return pass;
}

void expect_close_to_wide(const at::Tensor& got, const at::Tensor& expected, double tolerance,
                          const std::string& what, double size = 0) {
  size = std::max(size, expected.abs().max().item<double>());
  const double error = (got.to(at::kDouble) - expected).abs().max().item<double>();
  EXPECT_LE(error, tolerance * (size + 1e-3)) << what;
}

void expect_trains(const std::string& level, const Layered& net,
                   const std::vector<std::string>& keep, double tolerance) {
  const std::string where = level + ", " + net.name + ", " + (keep.empty() ? "" : keep.front());
  const FloatPass expected = wide_pass(net);
  auto made = net.make();
  torch::optim::SGD sgd(made->parameters(), 0.1);
  Options options = at_level(level);
  options.keep_float = keep;
  auto [model, optimizer] = initialize(made, sgd, options);
  const at::Tensor result = model(net.input);
  EXPECT_EQ(result.scalar_type(), at::kFloat) << where;
  expect_close_to_wide(result, expected.result, tolerance, where);
  scale_loss(result.square().mean(), optimizer).backward();
  // A bias before a batch norm has none: what is left there is rounding of the others.
  double largest = 0;
  for (const at::Tensor& gradient : expected.gradients)
    largest = std::max(largest, gradient.abs().max().item<double>());
  const auto masters = master_params(optimizer);
  for (std::size_t i = 0; i < masters.size(); ++i) {
    expect_close_to_wide(masters[i].grad(), expected.gradients[i], 8 * tolerance,
                         where + ", gradient " + std::to_string(i), largest);
  }
  EXPECT_TRUE(optimizer.step().applied()) << where;
  EXPECT_NO_THROW(model(net.input)) << where;
}

double digits_of(const std::string& level) {
  return level == "O5" ? 0x1p-5 : 0x1p-8;
}

TEST(FloatInputs, EveryLowParameterMayBeKept) {
  for (const std::string level : {"O2", "O3", "O5"}) {
    for (const Layered& net : layered_networks()) expect_trains(level, net, {"*"}, 1e-4);
  }
}

TEST(FloatInputs, ThreeNamesThatAreAllLayersAreTheWholeNetwork) {
  for (const std::string level : {"O2", "O3", "O5"}) {
    for (const Layered& net : layered_networks()) expect_trains(level, net, {"0", "1", "2"}, 1e-4);
  }
}

TEST(FloatInputs, ASubmoduleAtAnyPlaceMayBeKept) {
  for (const std::string level : {"O2", "O3", "O5"}) {
    for (const Layered& net : layered_networks()) {
      for (const std::string place : {"0", "1", "2"})
        expect_trains(level, net, {place}, digits_of(level));
    }
  }
}

TEST(FloatInputs, OneParameterOfALayerMayBeKept) {
  for (const std::string level : {"O2", "O3", "O5"}) {
    for (const Layered& net : layered_networks()) {
      for (const std::string pattern : {"*weight*", "*bias*"}) {
        if (net.name == "lstm" || (net.name == "prelu" && pattern == "*bias*")) continue;
        expect_trains(level, net, {pattern}, digits_of(level));
      }
    }
  }
}

// 1e5 is beyond float16: the first layer is there to bring it down.
TEST(FloatInputs, AFirstLayerThatIsKeptTakesInputsAsTheyCome) {
  for (const std::string level : {"O2", "O3"}) {
    const auto make = [] {
      torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Tanh(),
                                torch::nn::Linear(8, 2));
      const torch::NoGradGuard no_grad;
      net->parameters()[0].mul_(1e-5);
      return net;
    };
    Layered net{"large inputs", make, inputs() * 1e5};
    const auto seeded = [make] {
      torch::manual_seed(3);
      return make();
    };
    net.make = seeded;
    auto kept = net.make();
    Options options = at_level(level);
    options.keep_float = {"0"};
    auto model = initialize(kept, options);
    const at::Tensor result = model(net.input);
    EXPECT_TRUE(result.isfinite().all().item<bool>()) << level;
    expect_close_to_wide(result, wide_pass(net).result, digits_of(level), level);
  }
}

TEST(FloatInputs, ANetworkWithoutNamesTakesLowInputsStill) {
  at::ScalarType seen = at::kDouble;
  struct Sees : torch::nn::Module {
    explicit Sees(at::ScalarType& type)
        : type_(type), line(register_module("line", torch::nn::Linear(4, 2))) {}
    at::Tensor forward(const at::Tensor& x) {
      type_ = x.scalar_type();
      return line(x);
    }
    at::ScalarType& type_;
    torch::nn::Linear line;
  };
  for (const bool named : {false, true}) {
    auto net = std::make_shared<Sees>(seen);
    Options options = at_level("O2");
    if (named) options.keep_float = {"line.bias"};
    auto model = initialize(net, options);
    model(inputs());
    EXPECT_EQ(seen, at::kHalf);
  }
}

// ---- tables of positions

struct PositionsImpl : torch::nn::Module {
  PositionsImpl() {
    const at::Tensor i = torch::arange(0, 64, 2).to(at::kFloat);
    inv_freq = register_buffer("inv_freq", torch::pow(10000.0, -i / 64));
    angles = register_buffer("angles", torch::outer(torch::arange(2048).to(at::kFloat), inv_freq));
    places = register_buffer("places", torch::arange(4096).to(at::kFloat) + 1);
    mask = register_buffer("mask", torch::ones({8, 8}).tril());
    scale = register_buffer("scale", torch::rand({32}) + 0.5);
    line = register_module("line", torch::nn::Linear(64, 64));
  }
  at::Tensor cosines(std::int64_t position) {
    return torch::cos(torch::arange(position, position + 1).unsqueeze(1) * inv_freq);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor cos = cosines(2047);
    const at::Tensor table = torch::cos(angles[2047]).unsqueeze(0);
    return line(x) * torch::cat({cos, table}, 1).to(x.scalar_type());
  }
  at::Tensor inv_freq, angles, places, mask, scale;
  torch::nn::Linear line{nullptr};
};
TORCH_MODULE(Positions);

TEST(PositionTables, FrequenciesAnglesAndPositionsStayFloat) {
  for (const std::string level : {"O2", "O5"}) {
    Positions net;
    const at::Tensor before = net->inv_freq.clone();
    const at::Tensor expected =
        torch::cos(2047.0 * net->inv_freq.to(at::kDouble)).to(at::kFloat).unsqueeze(0);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    const Listener listener;
    Options options = at_level(level);
    options.verbosity = 1;
    auto [model, optimizer] = initialize(net, sgd, options);
    for (const std::string name : {"inv_freq", "angles", "places"}) {
      EXPECT_EQ(net->named_buffers()[name].scalar_type(), at::kFloat) << level << ' ' << name;
      EXPECT_EQ(listener.count("the buffer '" + name + "' keeps float"), 1) << level;
    }
    EXPECT_TRUE(torch::equal(net->inv_freq, before));
    for (const std::string name : {"mask", "scale"})
      EXPECT_EQ(net->named_buffers()[name].scalar_type(),
                level == "O2" ? at::kHalf : at::kBFloat16);
    const at::Tensor got = model.call([](PositionsImpl& each) { return each.cosines(2047); });
    // float32's own rounding of the angle: 2047 * 2^-24.
    EXPECT_LT((got - expected).abs().max().item<float>(), 5e-4F) << level;
    scale_loss(model(torch::rand({2, 64})).sum(), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
}

TEST(PositionTables, OtherLevelsDoAsTheySay) {
  Positions net;
  auto model = initialize(net, at_level("O3"));
  ASSERT_FALSE(net->named_buffers().is_empty());
  for (const auto& item : net->named_buffers())
    EXPECT_EQ(item.value().scalar_type(), at::kHalf) << item.key();
}

TEST(PositionTables, WhatTheLowTypeHoldsExactlyIsCast) {
  struct Exact : torch::nn::Module {
    Exact() {
      places = register_buffer("places", torch::arange(128).to(at::kFloat));
      line = register_module("line", torch::nn::Linear(4, 2));
    }
    at::Tensor forward(const at::Tensor& x) { return line(x) + places[1]; }
    at::Tensor places;
    torch::nn::Linear line{nullptr};
  };
  auto net = std::make_shared<Exact>();
  auto model = initialize(net, at_level("O2"));
  EXPECT_EQ(net->places.scalar_type(), at::kHalf);
}

}  // namespace
}  // namespace mezzo::amp
