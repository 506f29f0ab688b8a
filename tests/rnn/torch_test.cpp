// Layers that torch::nn has as well give its results, to the bit on its kernels, and its files.
#include <gtest/gtest.h>

#include <cstdio>

#include "reference.h"

namespace mezzo::rnn {
namespace {

struct TorchResult {
  at::Tensor output;
  Hidden hidden;
};

/// torch::nn's layer of that kind, with the same options.
struct TorchLayer {
  std::shared_ptr<torch::nn::Module> module;
  std::function<TorchResult(const at::Tensor&)> forward;

  static TorchLayer make(Kind kind, const Options& o) {
    const auto set = [&](auto options) {
      options.num_layers(o.num_layers).bias(o.bias).batch_first(o.batch_first);
      options.dropout(o.dropout).bidirectional(o.bidirectional);
      return options;
    };
    if (kind == Kind::kLstm) {
      auto options = set(torch::nn::LSTMOptions(o.input_size, o.hidden_size));
      if (o.output_size) options.proj_size(*o.output_size);
      torch::nn::LSTM lstm(options);
      return {lstm.ptr(), [lstm](const at::Tensor& x) mutable {
                const auto [output, states] = lstm(x);
                return TorchResult{output, {std::get<0>(states), std::get<1>(states)}};
              }};
    }
    const auto one_state = [](auto layer) -> TorchLayer {
      return {layer.ptr(), [layer](const at::Tensor& x) mutable {
                const auto [output, state] = layer(x);
                return TorchResult{output, {state}};
              }};
    };
    if (kind == Kind::kGru)
      return one_state(torch::nn::GRU(set(torch::nn::GRUOptions(o.input_size, o.hidden_size))));
    auto options = set(torch::nn::RNNOptions(o.input_size, o.hidden_size));
    if (kind == Kind::kRelu) options.nonlinearity(torch::kReLU);
    return one_state(torch::nn::RNN(options));
  }
};

std::vector<Options> all_options() {
  std::vector<Options> all;
  all.reserve(16);
  for (int i = 0; i < 16; ++i) {
    all.push_back({.input_size = kFeatures,
                   .hidden_size = kUnits,
                   .num_layers = (i & 1) != 0 ? 2 : 1,
                   .bias = (i & 2) == 0,
                   .batch_first = (i & 4) != 0,
                   .dropout = (i & 1) != 0 ? 0.3 : 0,
                   .bidirectional = (i & 8) != 0});
  }
  return all;
}

struct Both {
  TorchLayer torch;
  AnyRecurrent own;

  Both(Kind kind, const Options& options)
      : torch((torch::manual_seed(5), TorchLayer::make(kind, options))),
        own((torch::manual_seed(5), AnyRecurrent::make(kind, options))) {}
  void to_double() const {
    torch.module->to(at::kDouble);
    own.module->to(at::kDouble);
  }
};

void expect_equal(const at::Tensor& got, const at::Tensor& wanted, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  if (tolerance == 0) {
    EXPECT_TRUE(got.equal(wanted)) << what;
  } else {
    EXPECT_LE(largest_difference(got, wanted), tolerance) << what;
  }
}

void expect_same_gradients(const Both& both, double tolerance, const std::string& what) {
  const auto wanted = both.torch.module->named_parameters();
  const auto got = both.own.module->named_parameters();
  ASSERT_EQ(got.keys(), wanted.keys()) << what;
  for (const auto& item : wanted)
    expect_equal(got[item.key()].grad(), item.value().grad(), tolerance, what + item.key());
}

TEST(RecurrentLikeTorch, EveryOptionGivesTheSameBits) {
  for (const Kind kind : {Kind::kLstm, Kind::kGru, Kind::kRelu, Kind::kTanh}) {
    for (const Options& options : all_options()) {
      const Both both(kind, options);
      torch::manual_seed(7);
      const at::Tensor x = torch::randn({kLength, kBatch, kFeatures});
      torch::manual_seed(8);
      const TorchResult wanted = both.torch.forward(x);
      torch::manual_seed(8);
      const auto [output, hidden] = both.own.forward(x, {}, {});
      expect_equal(output, wanted.output, 0, "output");
      ASSERT_EQ(hidden.size(), wanted.hidden.size());
      for (std::size_t i = 0; i < hidden.size(); ++i)
        expect_equal(hidden[i], wanted.hidden[i], 0, "hidden");
      wanted.output.square().sum().backward();
      output.square().sum().backward();
      expect_same_gradients(both, 0, "");
    }
  }
}

TEST(RecurrentLikeTorch, ProjectionsGiveTheSameBits) {
  for (Options options : all_options()) {
    options.output_size = 3;
    const Both both(Kind::kLstm, options);
    torch::manual_seed(7);
    const at::Tensor x = torch::randn({kLength, kBatch, kFeatures});
    torch::manual_seed(8);
    const TorchResult wanted = both.torch.forward(x);
    torch::manual_seed(8);
    const auto [output, hidden] = both.own.forward(x, {}, {});
    expect_equal(output, wanted.output, 0, "output");
    expect_equal(hidden[0], wanted.hidden[0], 0, "h");
    expect_equal(hidden[1], wanted.hidden[1], 0, "c");
  }
}

// The loop over time runs instead of the kernel, with the same dropout.
TEST(RecurrentLikeTorch, CollectedStatesBelongToTheSameNetwork) {
  for (const Kind kind : {Kind::kLstm, Kind::kGru, Kind::kRelu, Kind::kTanh}) {
    for (const Options& options : all_options()) {
      const Both both(kind, options);
      both.to_double();
      torch::manual_seed(7);
      const at::Tensor x = torch::randn({kLength, kBatch, kFeatures}, at::kDouble);
      torch::manual_seed(8);
      const TorchResult wanted = both.torch.forward(x);
      torch::manual_seed(8);
      const auto [output, hidden] = both.own.forward(x, {}, {.collect_hidden = true});
      expect_equal(output, wanted.output, 1e-12, "output");
      const std::int64_t directions = options.bidirectional ? 2 : 1;
      const std::int64_t length = options.batch_first ? kBatch : kLength;
      for (std::size_t i = 0; i < hidden.size(); ++i) {
        ASSERT_EQ(hidden[i].size(0), length);
        for (std::int64_t place = 0; place < options.num_layers * directions; ++place) {
          const bool backwards = options.bidirectional && place % 2 == 1;
          expect_equal(hidden[i][backwards ? 0 : length - 1][place], wanted.hidden[i][place], 1e-12,
                       "last state");
        }
      }
      const at::Tensor of_top =
          hidden[0].slice(1, (options.num_layers - 1) * directions).transpose(1, 2).flatten(2);
      expect_equal(options.batch_first ? of_top.transpose(0, 1) : of_top, wanted.output, 1e-12,
                   "states of the last layer");
      wanted.output.square().sum().backward();
      output.square().sum().backward();
      expect_same_gradients(both, 1e-11, "");
    }
  }
}

TEST(RecurrentLikeTorch, StatesAreTakenInLibTorchsForms) {
  const Options options{.input_size = kFeatures, .hidden_size = kUnits};
  const at::Tensor x = torch::randn({kLength, kBatch, kFeatures});
  const at::Tensor h = torch::randn({1, kBatch, kUnits});
  const at::Tensor c = torch::randn({1, kBatch, kUnits});
  torch::manual_seed(5);
  torch::nn::LSTM torch_lstm(torch::nn::LSTMOptions(kFeatures, kUnits));
  torch::manual_seed(5);
  LSTM lstm(options);
  const at::Tensor wanted = std::get<0>(torch_lstm(x, std::make_tuple(h, c)));
  EXPECT_TRUE(std::get<0>(lstm(x, std::make_tuple(h, c))).equal(wanted));
  EXPECT_TRUE(std::get<0>(lstm(x, Hidden{h, c})).equal(wanted));
  EXPECT_TRUE(std::get<0>(lstm->forward(x, {h, c})).equal(wanted));
  torch::manual_seed(5);
  torch::nn::GRU torch_gru(torch::nn::GRUOptions(kFeatures, kUnits));
  torch::manual_seed(5);
  GRU gru(options);
  EXPECT_TRUE(std::get<0>(gru(x, h)).equal(std::get<0>(torch_gru(x, h))));
  EXPECT_TRUE(std::get<0>(gru(x, at::Tensor())).equal(std::get<0>(torch_gru(x))));
}

TEST(RecurrentLikeTorch, FilesOfOneLoadIntoTheOther) {
  const Options options{
      .input_size = kFeatures, .hidden_size = kUnits, .num_layers = 2, .bidirectional = true};
  torch::manual_seed(11);
  torch::nn::LSTM theirs(
      torch::nn::LSTMOptions(kFeatures, kUnits).num_layers(2).bidirectional(true));
  const std::string path = testing::TempDir() + "mezzo_rnn.pt";
  torch::save(theirs, path);
  LSTM own(options);
  torch::load(own, path);
  const at::Tensor x = torch::randn({kLength, kBatch, kFeatures});
  EXPECT_TRUE(std::get<0>(own(x)).equal(std::get<0>(theirs(x))));
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

TEST(RecurrentLikeTorch, ReverseRunsFromTheLastStepToTheFirst) {
  for (const Kind kind : {Kind::kLstm, Kind::kGru, Kind::kMlstm}) {
    for (const bool collects : {false, true}) {
      torch::manual_seed(5);
      AnyRecurrent own = AnyRecurrent::make(
          kind, {.input_size = kFeatures, .hidden_size = kUnits, .num_layers = 2});
      const at::Tensor x = torch::randn({kLength, kBatch, kFeatures});
      const auto [wanted, states] = own.forward(x.flip({0}), {}, {.collect_hidden = collects});
      const auto [output, hidden] =
          own.forward(x, {}, {.collect_hidden = collects, .reverse = true});
      EXPECT_TRUE(output.equal(wanted.flip({0})));
      EXPECT_TRUE(hidden[0].equal(collects ? states[0].flip({0}) : states[0]));
    }
  }
}

}  // namespace
}  // namespace mezzo::rnn
