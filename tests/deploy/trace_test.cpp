// A trace has the network's names and tensors and gives what the network gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <sstream>

#include "messages.h"
#include "mezzo/amp.h"
#include "mezzo/deploy.h"
#include "mezzo/error.h"

namespace mezzo::deploy {
namespace {

namespace nn = torch::nn;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct BlockImpl : nn::Module {
  BlockImpl() {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1)));
    norm = register_module("norm", nn::BatchNorm2d(4));
    scale = register_parameter("scale", torch::full({4, 1, 1}, 0.5));
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) {
    return head->forward(torch::relu(norm(conv(x))) * scale).flatten(1);
  }
  std::tuple<at::Tensor, std::vector<at::Tensor>> features(const at::Tensor& x, bool twice) {
    const at::Tensor y = conv(x);
    return {y, {y * 2, twice ? y * 4 : y}};
  }
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d norm{nullptr};
  at::Tensor scale;
  nn::Sequential head{nn::Conv2d(4, 2, 1), nn::AdaptiveAvgPool2d(2)};
};
TORCH_MODULE(Block);

std::vector<std::string> names_of(const torch::jit::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) names.push_back(item.name);
  return names;
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && torch::equal(a, b);
}

TEST(Trace, GivesWhatTheNetworkGivesUnderItsNames) {
  torch::manual_seed(1);
  Block net;
  net->eval();
  const at::Tensor x = torch::randn({2, 3, 8, 8}), other = torch::randn({2, 3, 8, 8});
  torch::jit::Module traced = trace(net, {x});
  EXPECT_THAT(names_of(traced),
              ::testing::UnorderedElementsAre("scale", "conv.weight", "conv.bias", "norm.weight",
                                              "norm.bias", "head.0.weight", "head.0.bias"));
  EXPECT_FALSE(traced.is_training());
  EXPECT_TRUE(same(traced.forward({other}).toTensor(), net->forward(other)));
}

TEST(Trace, TheFileIsReadWithoutTheNetwork) {
  Block net;
  net->eval();
  const at::Tensor x = torch::randn({1, 3, 6, 6});
  std::stringstream file;
  trace(net, {x}).save(file);
  torch::jit::Module loaded = torch::jit::load(file);
  EXPECT_TRUE(same(loaded.forward({x}).toTensor(), net->forward(x)));
}

TEST(Trace, ParametersAreSharedOrCopied) {
  Block net;
  const at::Tensor x = torch::randn({1, 3, 6, 6});
  const torch::jit::Module shared = trace(net, {x});
  const torch::jit::Module copied = trace(net, {x}, {.share_parameters = false});
  const auto scale = [](const torch::jit::Module& module) {
    return module.attr("scale").toTensor();
  };
  EXPECT_TRUE(scale(shared).is_same(net->scale));
  EXPECT_FALSE(scale(copied).is_alias_of(net->scale));
  EXPECT_TRUE(same(scale(copied), net->scale));
}

TEST(Trace, ModesAndBuffersAreAsBefore) {
  Block net;
  net->train();
  net->head->eval();
  const at::Tensor before = net->norm->running_mean.clone();
  const at::Tensor x = torch::randn({2, 3, 8, 8});
  const torch::jit::Module training = trace(net, {x}, {.train = true});
  EXPECT_TRUE(training.is_training());
  EXPECT_TRUE(same(net->norm->running_mean, before));
  EXPECT_EQ(net->norm->num_batches_tracked.item<int64_t>(), 0);
  EXPECT_FALSE(trace(net, {x}).is_training());
  EXPECT_TRUE(net->is_training());
  EXPECT_TRUE(net->conv->is_training());
  EXPECT_FALSE(net->head->is_training());
}

TEST(Trace, OtherMembersAndNumbersBesideTensors) {
  Block net;
  net->eval();
  const at::Tensor x = torch::randn({1, 3, 4, 4});
  torch::jit::Module twice = trace(net, &BlockImpl::features, {x, true});
  torch::jit::Module once = trace(net, &BlockImpl::features, {x, false});
  const at::Tensor y = net->conv(x);
  const auto last = [&](torch::jit::Module& module) {
    return module.forward({x}).toTupleRef().elements()[1].toTensorVector()[1];
  };
  EXPECT_TRUE(same(last(twice), y * 4));
  EXPECT_TRUE(same(last(once), y));
}

struct CollectionsImpl : nn::Module {
  std::map<std::string, at::Tensor> forward(
      const std::tuple<at::Tensor, std::optional<at::Tensor>>& pair,
      const std::vector<at::Tensor>& list, const std::map<std::string, at::Tensor>& map,
      double factor = 2) {
    const auto& [first, second] = pair;
    return {{"sum", first + list[0] + list[1]},
            {"map", map.at("a") * factor + (second ? *second : first)}};
  }
};
TORCH_MODULE(Collections);

TEST(Trace, TuplesListsAndDictionariesOfTensors) {
  Collections net;
  const auto filled = [](double value) { return torch::full({2}, value); };
  c10::Dict<std::string, at::Tensor> map;
  map.insert("a", filled(5));
  const std::vector<c10::IValue> inputs = {std::make_tuple(filled(1), filled(2)),
                                           std::vector<at::Tensor>{filled(3), filled(4)}, map};
  torch::jit::Module traced = trace(net, inputs);
  const auto result = traced.forward(inputs).toGenericDict();
  EXPECT_TRUE(same(result.at("sum").toTensor(), filled(8)));
  EXPECT_TRUE(same(result.at("map").toTensor(), filled(12)));
}

TEST(Trace, NetworksWithoutOneForward) {
  nn::Sequential net(nn::Linear(3, 4), nn::ReLU(), nn::Linear(4, 2));
  const at::Tensor x = torch::randn({5, 3});
  torch::jit::Module traced = trace(net, {x});
  EXPECT_TRUE(same(traced.forward({x}).toTensor(), net->forward(x)));
  EXPECT_THAT(names_of(traced), ElementsAre("0.weight", "0.bias", "2.weight", "2.bias"));
}

TEST(Trace, AnInitializedModelGivesItsMasters) {
  torch::manual_seed(3);
  nn::Linear net(3, 2);
  const at::Tensor x = torch::randn({4, 3});
  const at::Tensor expected = net->forward(x);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  for (const char* level : {"O1", "O2", "O3", "O5"}) {
    nn::Linear own(3, 2);
    {
      const torch::NoGradGuard no_grad;
      own->weight.copy_(net->weight);
      own->bias.copy_(net->bias);
    }
    torch::optim::SGD optimizer(own->parameters(), 0.1);
    amp::Options options;
    options.opt_level = level;
    options.verbosity = 0;
    auto [model, wrapped] = amp::initialize(own, optimizer, options);
    torch::jit::Module traced = trace(model, {x});
    const at::Tensor got = traced.forward({x}).toTensor();
    EXPECT_EQ(got.scalar_type(), at::kFloat) << level;
    const double tolerance = std::string(level) == "O3" ? 2e-3 : 1e-6;
    EXPECT_TRUE(torch::allclose(got, expected, tolerance, tolerance)) << level;
    EXPECT_EQ(own->weight.scalar_type(), std::string(level) == "O1"   ? at::kFloat
                                         : std::string(level) == "O5" ? at::kBFloat16
                                                                      : at::kHalf);
  }
}

TEST(TraceFailures, ExamplesThatTheNetworkDoesNotTake) {
  Block net;
  const at::Tensor x = torch::randn({1, 3, 4, 4});
  EXPECT_THROW(trace(net, {}), ConfigError);
  EXPECT_THAT(message_of([&] {
                trace(net, {x, x});
              }),
              HasSubstr("takes 1 to 1 arguments; give one example for each, got 2"));
  EXPECT_THAT(message_of([&] { trace(net, {3.0}); }),
              HasSubstr("argument 0 of the network is a tensor"));
  EXPECT_THAT(message_of([&] { trace(Block(nullptr), {x}); }), HasSubstr("handle is empty"));
  EXPECT_THAT(message_of([&] { trace(net, {torch::randn({1, 5, 4, 4})}); }), HasSubstr("channels"));
}

}  // namespace
}  // namespace mezzo::deploy
