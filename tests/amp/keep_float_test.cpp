// Options::keep_float: what stays float in a low network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "amp/training.h"
#include "mezzo/amp.h"

namespace mezzo::amp {
namespace {

/// A table of cosines, a norm and two heads.
struct PositionedImpl : torch::nn::Module {
  PositionedImpl() {
    table = register_buffer("cos", torch::cos(torch::arange(2048).to(at::kFloat)).unsqueeze(1));
    body = register_module(
        "body", torch::nn::Sequential(torch::nn::Linear(4, 4),
                                      torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})),
                                      torch::nn::Linear(4, 4)));
    head = register_module("head", torch::nn::Linear(4, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return head(body->forward(x + table[0])); }
  at::Tensor table;
  torch::nn::Sequential body{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Positioned);

std::vector<std::string> floats_of(const torch::nn::Module& net) {
  std::vector<std::string> names;
  for (const auto& item : net.named_parameters()) {
    if (item.value().scalar_type() == at::kFloat) names.push_back(item.key());
  }
  for (const auto& item : net.named_buffers()) {
    if (item.value().scalar_type() == at::kFloat) names.push_back(item.key());
  }
  return names;
}

std::vector<std::string> kept_by(const std::string& level, std::vector<std::string> patterns) {
  Positioned net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Options options = at_level(level);
  options.keep_float = std::move(patterns);
  auto [model, optimizer] = initialize(net, sgd, options);
  optimizer.zero_grad();
  scale_loss(loss_of(model), optimizer).backward();
  EXPECT_TRUE(optimizer.step().applied()) << level;
  EXPECT_EQ(model(inputs()).scalar_type(), at::kFloat);
  return floats_of(*net);
}

TEST(KeepFloat, NamesGlobsExpressionsModulesAndTypesAreKept) {
  using testing::ElementsAre;
  for (const std::string level : {"O2", "O3", "O5"}) {
    EXPECT_THAT(kept_by(level, {}), ElementsAre());
    EXPECT_THAT(kept_by(level, {"cos"}), ElementsAre("cos"));
    EXPECT_THAT(kept_by(level, {"head.bias"}), ElementsAre("head.bias"));
    EXPECT_THAT(kept_by(level, {"head"}), ElementsAre("head.weight", "head.bias"));
    EXPECT_THAT(kept_by(level, {"body.*.bias"}),
                ElementsAre("body.0.bias", "body.1.bias", "body.2.bias"));
    EXPECT_THAT(kept_by(level, {"/body\\.[02]\\.weight/"}),
                ElementsAre("body.0.weight", "body.2.weight"));
    for (const std::string type :
         {"LayerNorm", "LayerNormImpl", "torch::nn::LayerNorm", "Layer*"}) {
      EXPECT_THAT(kept_by(level, {type}), ElementsAre("body.1.weight", "body.1.bias")) << type;
    }
    EXPECT_THAT(kept_by(level, {"body", "cos"}), testing::SizeIs(7));
  }
}

TEST(KeepFloat, ATableKeepsItsValuesToTheLastBit) {
  Positioned net;
  const at::Tensor before = net->table.clone();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Options options = at_level("O5");
  options.keep_float = {"cos"};
  auto [model, optimizer] = initialize(net, sgd, options);
  EXPECT_TRUE(torch::equal(net->table, before));
}

TEST(KeepFloat, APatternThatMatchesNothingIsAnErrorThatListsWhatThereIs) {
  for (const std::string& level : kLevels) {
    Positioned net;
    Options options = at_level(level);
    options.keep_float = {"head", "heads"};
    try {
      initialize(net, options);
      FAIL() << level;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("'heads' matches no parameter"));
      EXPECT_THAT(error.what(), testing::HasSubstr("body.1.weight"));
      EXPECT_THAT(error.what(), testing::HasSubstr("LayerNorm"));
    }
    EXPECT_EQ(net->head->weight.scalar_type(), at::kFloat) << "something was changed";
  }
  Positioned net;
  Options options = at_level("O2");
  for (const std::string pattern : {"", "/(/"}) {
    options.keep_float = {pattern};
    EXPECT_THROW(initialize(net, options), ConfigError) << pattern;
  }
}

TEST(KeepFloat, IsSaidInMessagesAndCheckpointsAndReadFromFlags) {
  const Listener listener;
  Positioned net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Options options = Options::from_flags({{"opt_level", "O2"}, {"keep_float", "cos,body.1"}});
  EXPECT_THAT(options.keep_float, testing::ElementsAre("cos", "body.1"));
  auto [model, optimizer] = initialize(net, sgd, options);
  EXPECT_EQ(listener.count("these keep float: 'cos' 'body.1'"), 1);
  const std::string path = testing::TempDir() + "keep_float.safetensors";
  save_checkpoint(path, model, optimizer);
  EXPECT_NO_THROW(load_checkpoint(path, model, optimizer));
}

}  // namespace
}  // namespace mezzo::amp
