// Recurrent layers at every level: training, types, and how often anything is cast.
#include <gtest/gtest.h>

#include "mezzo/amp.h"
#include "mezzo/autocast.h"
#include "mezzo/cast_counts.h"
#include "mezzo/hardware.h"
#include "reference.h"

namespace mezzo::rnn {
namespace {

struct RecurrentNetImpl : torch::nn::Module {
  explicit RecurrentNetImpl(Kind kind, bool projects)
      : recurrent(AnyRecurrent::make(
            kind, {.input_size = kFeatures,
                   .hidden_size = kUnits,
                   .num_layers = 2,
                   .bidirectional = true,
                   .output_size = projects ? std::optional<int64_t>(5) : std::nullopt})),
        last(register_module("last", torch::nn::Linear(projects ? 10 : 2 * kUnits, 2))) {
    register_module("recurrent", recurrent.module);
  }
  at::Tensor forward(const at::Tensor& x) {
    return last(std::get<0>(recurrent.forward(x, {}, {})).mean(0));
  }
  AnyRecurrent recurrent;
  torch::nn::Linear last;
};
TORCH_MODULE(RecurrentNet);

std::vector<double> trained(Kind kind, bool projects, const std::string& level) {
  torch::manual_seed(6);
  RecurrentNet net(kind, projects);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = level, .init_loss_scale = 256, .verbosity = 0});
  const at::Tensor x = torch::randn({5, kBatch, kFeatures});
  const at::Tensor target = torch::randn({kBatch, 2});
  std::vector<double> losses;
  for (int step = 0; step < 12; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(model(x), target);
    amp::scale_loss(loss, optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
    losses.push_back(loss.item<double>());
  }
  return losses;
}

TEST(RecurrentLevels, TrainingFollowsFloat) {
  for (const Kind kind : {Kind::kLstm, Kind::kGru, Kind::kRelu, Kind::kTanh, Kind::kMlstm}) {
    for (const bool projects : {false, true}) {
      const std::vector<double> wanted = trained(kind, projects, "O0");
      EXPECT_LT(wanted.back(), 0.98 * wanted.front());
      for (const char* level : {"O1", "O2", "O3", "O4", "O5"}) {
        const std::vector<double> got = trained(kind, projects, level);
        for (std::size_t i = 0; i < wanted.size(); ++i)
          EXPECT_NEAR(got[i], wanted[i], 0.05) << level << ' ' << static_cast<int>(kind);
      }
    }
  }
}

TEST(RecurrentLevels, LstmGivesTheBitsOfTorchsInsideAModel) {
  for (const char* level : {"O0", "O1", "O2", "O3", "O4", "O5"}) {
    torch::manual_seed(2);
    torch::nn::LSTM theirs(torch::nn::LSTMOptions(kFeatures, kUnits).num_layers(2));
    torch::manual_seed(2);
    LSTM own(Options{.input_size = kFeatures, .hidden_size = kUnits, .num_layers = 2});
    auto their_model = amp::initialize(theirs, {.opt_level = level, .verbosity = 0});
    auto own_model = amp::initialize(own, {.opt_level = level, .verbosity = 0});
    const at::Tensor x = torch::randn({5, kBatch, kFeatures});
    const auto [wanted, states] = their_model(x);
    const auto [output, hidden] = own_model(x);
    EXPECT_EQ(output.scalar_type(), wanted.scalar_type()) << level;
    EXPECT_TRUE(output.equal(wanted)) << level;
    EXPECT_TRUE(hidden[1].equal(std::get<1>(states))) << level;
  }
}

struct LowCase {
  at::ScalarType type;
  ComputeMode mode;
};

struct RecurrentLow : testing::TestWithParam<LowCase> {
  RecurrentLow() {
    torch::manual_seed(3);
    set_compute_mode(GetParam().type, GetParam().mode);
  }
  ~RecurrentLow() override { set_compute_mode(GetParam().type, ComputeMode::kAuto); }

  double tolerance() const { return GetParam().type == at::kHalf ? 8e-3 : 6e-2; }
  Options options{
      .input_size = kFeatures, .hidden_size = kUnits, .num_layers = 2, .output_size = 5};
};

TEST_P(RecurrentLow, TheLoopOverTimeAgreesWithFloat64) {
  for (const Kind kind : {Kind::kLstm, Kind::kGru, Kind::kMlstm}) {
    AnyRecurrent own = AnyRecurrent::make(kind, options);
    const at::Tensor x = torch::randn({6, kBatch, kFeatures});
    const at::Tensor wanted = Reference(kind, options, *own.module)(x);
    at::Tensor output;
    Hidden hidden;
    {
      const amp::Autocast scope(Policy::defaults(GetParam().type));
      std::tie(output, hidden) = own.forward(x, {}, {.collect_hidden = true});
    }
    EXPECT_EQ(output.scalar_type(), GetParam().type);
    EXPECT_EQ(hidden[1].scalar_type(), GetParam().type);
    EXPECT_LT(largest_difference(output, wanted), tolerance());
    output.to(at::kFloat).square().sum().backward();

    std::vector<at::Tensor> got;
    for (const at::Tensor& weight : own.module->parameters()) {
      EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
      got.push_back(weight.grad().clone());
    }
    own.module->zero_grad();
    own.module->to(at::kDouble);
    std::get<0>(own.forward(x.to(at::kDouble), {}, {})).square().sum().backward();
    const std::vector<at::Tensor> weights = own.module->parameters();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double size = weights[i].grad().abs().max().item<double>();
      EXPECT_LT(largest_difference(got[i], weights[i].grad()), 4 * tolerance() * (1 + size)) << i;
    }
  }
}

CastCounts casts_of(const std::function<void()>& run) {
  const CastCounts before = cast_counts();
  run();
  const CastCounts after = cast_counts();
  return {after.weight_casts - before.weight_casts,
          after.activation_casts - before.activation_casts};
}

TEST_P(RecurrentLow, WeightsAreCastOnceAndStepsCastNothing) {
  mLSTM net(options);
  const auto count = static_cast<std::int64_t>(net->parameters().size());
  const at::Tensor brief = torch::randn({2, kBatch, kFeatures});
  const at::Tensor lengthy = torch::randn({50, kBatch, kFeatures});
  const amp::Autocast scope(Policy::defaults(GetParam().type));
  const CastCounts first = casts_of([&] { net(brief); });
  const CastCounts second = casts_of([&] { net(lengthy); });
  EXPECT_EQ(first.weight_casts, count);
  EXPECT_EQ(second.weight_casts, 0);
  EXPECT_EQ(first.activation_casts, 3);  // x, h and c
  EXPECT_EQ(second.activation_casts, 3);
}

TEST_P(RecurrentLow, LowNetworksRunTheSameLoop) {
  mLSTM net(options);
  const at::Tensor x = torch::randn({6, kBatch, kFeatures});
  const at::Tensor wanted = Reference(Kind::kMlstm, options, *net)(x);
  const bool half = GetParam().type == at::kHalf;
  auto model = amp::initialize(
      net,
      {.opt_level = half ? "O2" : "O5", .cast_model_outputs = GetParam().type, .verbosity = 0});
  const CastCounts casts = casts_of([&] {
    const auto [output, hidden] = model(x);
    EXPECT_EQ(output.scalar_type(), GetParam().type);
    EXPECT_LT(largest_difference(output, wanted), tolerance());
  });
  const CastCounts more = casts_of([&] { model(torch::randn({50, kBatch, kFeatures})); });
  EXPECT_EQ(more.activation_casts, casts.activation_casts);
}

INSTANTIATE_TEST_SUITE_P(Types, RecurrentLow,
                         testing::Values(LowCase{at::kHalf, ComputeMode::kEmulated},
                                         LowCase{at::kHalf, ComputeMode::kNative},
                                         LowCase{at::kBFloat16, ComputeMode::kEmulated},
                                         LowCase{at::kBFloat16, ComputeMode::kNative}),
                         [](const auto& test) {
                           return std::string(test.param.type == at::kHalf ? "Half" : "BFloat16") +
                                  (test.param.mode == ComputeMode::kNative ? "Native" : "Emulated");
                         });

TEST(RecurrentLevels, APolicyMovesTheLoopAsItMovesTheKernel) {
  const at::Tensor x = torch::randn({3, kBatch, kFeatures});
  for (const Kind kind : {Kind::kLstm, Kind::kMlstm}) {
    AnyRecurrent own = AnyRecurrent::make(kind, {.input_size = kFeatures, .hidden_size = kUnits});
    const at::Tensor wanted = std::get<0>(own.forward(x, {}, {}));
    const amp::Autocast scope(Policy::defaults(at::kBFloat16).with("lstm", CastClass::kFloat));
    EXPECT_TRUE(std::get<0>(own.forward(x, {}, {})).equal(wanted));
    EXPECT_EQ(std::get<0>(own.forward(x, {}, {.collect_hidden = true})).scalar_type(), at::kFloat);
  }
}

}  // namespace
}  // namespace mezzo::rnn
