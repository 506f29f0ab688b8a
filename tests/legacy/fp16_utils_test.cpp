#include "mezzo/fp16_utils.h"

#include <gmock/gmock.h>

#include <limits>
#include <random>
#include <sstream>

#include "amp/training.h"
#include "mezzo/error.h"

namespace mezzo::fp16_utils {
namespace {

using amp::inputs;
using amp::Line;
using amp::TinyNet;

constexpr double kInfiniteValue = std::numeric_limits<double>::infinity();

TEST(NetworkToHalf, MakesAllHalfButBatchNorms) {
  for (const bool affine : {true, false}) {
    TinyNet net(affine);
    const at::Tensor weight = net->first->weight;
    auto half = network_to_half(net);
    EXPECT_TRUE(half.parameters()[0].is_same(weight));
    EXPECT_EQ(weight.scalar_type(), at::kHalf);
    EXPECT_EQ(net->norm->running_mean.scalar_type(), at::kFloat);
    EXPECT_EQ(net->norm->num_batches_tracked.scalar_type(), at::kLong);
    if (affine) {
      EXPECT_EQ(net->norm->weight.scalar_type(), at::kFloat);
    }
    EXPECT_EQ(half(inputs()).scalar_type(), at::kHalf);
    EXPECT_EQ(half->forward(inputs().to(at::kDouble)).scalar_type(), at::kHalf);
    half.eval();
    EXPECT_FALSE(net->is_training());
  }
}

TEST(NetworkToHalf, ComputesWhatO2Computes) {
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::ReLU(),
                            torch::nn::Linear(8, 2));
  {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& each : net->parameters()) each.copy_(each.to(at::kHalf));
  }
  auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  auto model = amp::initialize(net, {.opt_level = "O2", .verbosity = 0});
  auto half = network_to_half(copy);
  EXPECT_TRUE(torch::equal(model(inputs()), half(inputs()).to(at::kFloat)));
}

struct WordsImpl : torch::nn::Module {
  WordsImpl() : words(register_module("words", torch::nn::Embedding(5, 3))) {}
  at::Tensor forward(const std::vector<at::Tensor>& parts, double factor = 2) {
    return words(parts.at(0)) * parts.at(1) * factor;
  }
  torch::nn::Embedding words;
};
TORCH_MODULE(Words);

TEST(Fp16Model, CastsFloatingInputsInContainersAndLeavesIntegersAlone) {
  FP16Model model{Words()};
  const at::Tensor result = model(std::vector<at::Tensor>{torch::tensor({1, 2}), torch::ones({3})});
  EXPECT_EQ(result.scalar_type(), at::kHalf);
  EXPECT_EQ(result.sizes(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_THROW(FP16Model{Words(nullptr)}, ConfigError);
}

TEST(Tofp16, IsTheFirstOfASequential) {
  torch::nn::Sequential net(tofp16(), torch::nn::Linear(4, 2));
  net->to(at::kHalf);
  EXPECT_EQ(net->forward(inputs()).scalar_type(), at::kHalf);
  EXPECT_EQ(tofp16()(torch::arange(3)).scalar_type(), at::kLong);
}

TEST(Tofp16, IsClonedWithTheSequentialAroundIt) {
  torch::nn::Sequential net(tofp16(), torch::nn::Linear(4, 2));
  net->to(at::kHalf);
  const auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  EXPECT_EQ(copy->size(), 2U);
  EXPECT_FALSE(copy->parameters()[0].is_same(net->parameters()[0]));
  EXPECT_TRUE(torch::equal(copy->forward(inputs()), net->forward(inputs())));
}

TEST(HalfNetwork, SavesItselfAndReadsFloatFilesToo) {
  TinyNet trained;
  std::stringstream float_file;
  torch::save(trained, float_file);
  auto half = network_to_half(TinyNet());
  torch::load(half, float_file);
  EXPECT_TRUE(torch::equal(half.parameters()[0], trained->first->weight.to(at::kHalf)));
  std::stringstream half_file;
  torch::save(half, half_file);
  auto again = network_to_half(TinyNet());
  torch::load(again, half_file);
  EXPECT_TRUE(torch::equal(again.parameters()[0], half.parameters()[0]));
  std::stringstream other_file;
  torch::save(Line(), other_file);
  EXPECT_THROW(torch::load(again, other_file), Error);
}

TEST(Convert, ModuleConvertsItselfAloneWithGradients) {
  TinyNet net;
  net->first->weight.mutable_grad() = torch::ones_like(net->first->weight);
  convert_module(*net, at::kHalf);
  EXPECT_EQ(net->first->weight.scalar_type(), at::kFloat);
  convert_module(*net->first, at::kHalf);
  EXPECT_EQ(net->first->weight.scalar_type(), at::kHalf);
  EXPECT_EQ(net->first->weight.grad().scalar_type(), at::kHalf);
  EXPECT_EQ(net->second->weight.scalar_type(), at::kFloat);
  convert_module(*net->norm, at::kHalf);
  EXPECT_EQ(net->norm->running_var.scalar_type(), at::kHalf);
  EXPECT_EQ(net->norm->num_batches_tracked.scalar_type(), at::kLong);
  BN_convert_float(*net);
  EXPECT_EQ(net->norm->running_var.scalar_type(), at::kFloat);
  EXPECT_EQ(net->first->weight.scalar_type(), at::kHalf);
  EXPECT_THROW(convert_module(*net, at::kLong), ConfigError);
  EXPECT_THROW(convert_network(*net, at::kInt), ConfigError);
}

TEST(Convert, NetworkKeepsBatchNormsAndRecurrentLayersRun) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kDouble, at::kFloat}) {
    TinyNet net(/*affine=*/false);
    net->second->weight.mutable_grad() = torch::ones_like(net->second->weight);
    convert_network(*net, type);
    EXPECT_EQ(net->first->weight.scalar_type(), type);
    EXPECT_EQ(net->second->weight.grad().scalar_type(), type);
    EXPECT_EQ(net->norm->running_var.scalar_type(), at::kFloat);
    torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 3).num_layers(2));
    FP16Model half(lstm);
    EXPECT_EQ(std::get<0>(half(torch::ones({5, 2, 4}))).scalar_type(), at::kHalf);
  }
}

/// Manual masters against a replay in double: three steps of descent.
TEST(Masters, ListsTrainAsAReplayInDoubleDoes) {
  for (const bool flat : {true, false}) {
    torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::Linear(3, 2));
    convert_network(*net, at::kHalf);
    auto [model, master] = prep_param_lists(*net, flat);
    ASSERT_EQ(master.size(), flat ? 1U : 4U);
    ASSERT_EQ(master[0].scalar_type(), at::kFloat);
    ASSERT_TRUE(master[0].is_leaf() && master[0].requires_grad());
    EXPECT_EQ(master[0].grad().defined(), flat);
    std::vector<at::Tensor> replay;
    for (const at::Tensor& each : model) replay.push_back(each.detach().to(at::kDouble));
    torch::optim::SGD sgd(master, 0.125);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      net->forward(inputs().to(at::kHalf)).to(at::kFloat).square().mean().backward();
      model_grads_to_master_grads(model, master, flat);
      for (std::size_t i = 0; i < replay.size(); ++i)
        replay[i] -= 0.125 * model[i].grad().to(at::kDouble);
      sgd.step();
      master_params_to_model_params(model, master, flat);
      for (std::size_t i = 0; i < replay.size(); ++i)
        EXPECT_TRUE(torch::allclose(model[i].to(at::kDouble), replay[i], 1e-3, 1e-3));
    }
    if (flat) continue;
    for (std::size_t i = 0; i < replay.size(); ++i)
      EXPECT_TRUE(torch::allclose(master[i].to(at::kDouble), replay[i], 1e-6, 1e-6));
  }
}

TEST(Masters, FrozenParametersAndMissingGradientsAreLeftOut) {
  TinyNet net;
  net->first->weight.requires_grad_(false);
  auto [model, master] = prep_param_lists(*net);
  EXPECT_EQ(model.size(), 5U);
  master[0].mutable_grad() = torch::ones_like(master[0]);
  model[1].mutable_grad() = torch::ones_like(model[1]);
  model_grads_to_master_grads(model, master);
  EXPECT_FALSE(master[0].grad().defined());
  EXPECT_TRUE(master[1].grad().defined());
  convert_network(*net, at::kHalf);
  try {
    prep_param_lists(*net, /*flat_master=*/true);
    FAIL() << "mixed types";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'norm.weight' is Float"));
  }
  auto [line, flat] = prep_param_lists(*Line(), true);
  model_grads_to_master_grads(line, flat, true);
  EXPECT_TRUE(torch::equal(flat[0].grad(), torch::zeros({3})));
  EXPECT_THROW(model_grads_to_master_grads(line, {}, false), ConfigError);
  EXPECT_THROW(model_grads_to_master_grads(line, {torch::zeros({4})}, true), ConfigError);
  EXPECT_THROW(master_params_to_model_params(line, {torch::zeros({2, 3})}), ConfigError);
}

/// The rule as Apex wrote it.
struct ApexRule {
  double scale;
  double factor;
  int window;
  int iteration = 0;
  int last_overflow = -1;
  void update(bool overflow) {
    if (overflow) {
      scale = std::max(scale / factor, 1.0);
      last_overflow = iteration;
    } else if ((iteration - last_overflow) % window == 0) {
      scale *= factor;
    }
    ++iteration;
  }
};

TEST(LegacyScalers, TheDynamicOneFollowsApexRule) {
  std::mt19937 draw(1);
  for (const int window : {1, 2, 5, 13}) {
    for (const double chance : {0.0, 0.1, 0.5}) {
      DynamicLossScaler scaler(16, 2, window);
      ApexRule apex{16, 2, window};
      for (int i = 0; i < 200 && apex.scale < 1e30; ++i) {
        const bool overflow = std::bernoulli_distribution(chance)(draw);
        scaler.update_scale(overflow);
        apex.update(overflow);
        ASSERT_EQ(scaler.loss_scale(), apex.scale) << window << " " << i;
      }
    }
  }
  EXPECT_EQ(DynamicLossScaler().loss_scale(), 4294967296.0);
  EXPECT_THROW(DynamicLossScaler(0), ConfigError);
  EXPECT_THROW(DynamicLossScaler(1, 0.5), ConfigError);
  EXPECT_THROW(DynamicLossScaler(1, 2, 0), ConfigError);
}

TEST(LegacyScalers, ScaleAndLookAtGradients) {
  at::Tensor w = torch::ones({2}, at::TensorOptions().requires_grad(true));
  LossScaler fixed(8);
  fixed.backward((w * 3).sum());
  EXPECT_TRUE(torch::equal(w.grad(), torch::full({2}, 24.0)));
  EXPECT_TRUE(torch::equal(fixed.scale_gradient(w.grad()), torch::full({2}, 192.0)));
  w.mutable_grad().fill_(kInfiniteValue);
  EXPECT_FALSE(fixed.has_overflow({w}));
  fixed.update_scale(true);
  EXPECT_EQ(fixed.loss_scale(), 8);
  EXPECT_EQ(LossScaler().loss_scale(), 1);
  EXPECT_THROW(LossScaler(-1), ConfigError);

  DynamicLossScaler dynamic(4);
  EXPECT_TRUE(dynamic.has_overflow({at::Tensor(), w}));
  w.mutable_grad().zero_();
  EXPECT_FALSE(dynamic.has_overflow({w, torch::ones({2})}));
  // Finite values whose sum is not: no overflow, other than in Apex.
  w.mutable_grad().fill_(3e38F);
  EXPECT_FALSE(dynamic.has_overflow({w}));
  w.mutable_grad().zero_();
  const at::Tensor loss = (w * 3).sum().to(at::kHalf);
  dynamic.backward(loss, /*retain_graph=*/true);
  dynamic.backward(loss);
  EXPECT_TRUE(torch::equal(w.grad(), torch::full({2}, 24.0)));
  EXPECT_TRUE(torch::equal(dynamic.scale_gradient(w.grad()), torch::full({2}, 96.0)));
}

TEST(ToPythonFloat, ReadsTheFirstElement) {
  EXPECT_EQ(to_python_float(torch::tensor(2.5)), 2.5);
  EXPECT_EQ(to_python_float(torch::tensor({1.5F, 3.0F}).to(at::kHalf)), 1.5);
  EXPECT_EQ(to_python_float(torch::tensor({{7}})), 7.0);
  EXPECT_THROW(to_python_float(torch::zeros({0})), ConfigError);
  EXPECT_THROW(to_python_float({}), ConfigError);
}

}  // namespace
}  // namespace mezzo::fp16_utils
