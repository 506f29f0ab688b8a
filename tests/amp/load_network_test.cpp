// Files of bare networks of any floating type, read into bare networks of any other and into
// models.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "amp/training.h"
#include "mezzo/amp.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;

const std::vector<at::ScalarType> kFileTypes{at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};

std::string path_of(const std::string& name) {
  return testing::TempDir() + "mezzo_load_network_" + name + ".pt";
}

TEST(LoadNetwork, ABareNetworkOfAnyTypeTakesTheValuesOfAFileOfAnyType) {
  for (const at::ScalarType saved : kFileTypes) {
    TinyNet source;
    source->to(saved);
    const std::string path = path_of("types");
    torch::save(source, path);
    for (const at::ScalarType own : kFileTypes) {
      TinyNet net;
      net->to(own);
      load_network(*net, path);
      for (const auto& item : net->named_parameters()) {
        EXPECT_EQ(item.value().scalar_type(), own) << saved << ' ' << item.key();
        const at::Tensor expected = source->named_parameters()[item.key()].to(own);
        EXPECT_TRUE(torch::equal(item.value(), expected)) << saved << ' ' << own;
        EXPECT_TRUE(item.value().requires_grad() && item.value().is_leaf());
      }
      EXPECT_TRUE(torch::equal(net->norm->running_var, source->norm->running_var.to(own)));
      loss_of(net, inputs().to(own)).backward();
    }
  }
}

TEST(LoadNetwork, ALowNetworkOfALevelThatWasSavedBareGoesIntoFloatAndIntoModels) {
  for (const std::string level : {"O2", "O3", "O5"}) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const std::string path = path_of("level");
    torch::save(net, path);
    TinyNet plain;
    load_network(*plain, path);
    const at::Tensor expected = net->first->weight.to(at::kFloat);
    EXPECT_TRUE(torch::equal(plain->first->weight, expected)) << level;
    EXPECT_EQ(plain->first->weight.scalar_type(), at::kFloat);
    for (const std::string& other : kLevels) {
      TinyNet target;
      torch::optim::SGD its(target->parameters(), 0.1);
      auto [loaded, its_optimizer] = initialize(target, its, at_level(other));
      torch::load(loaded, path);
      EXPECT_TRUE(torch::allclose(model_state_dict(loaded)["first.weight"], expected, 1e-2, 1e-3))
          << level << " into " << other;
      scale_loss(loss_of(loaded), its_optimizer).backward();
      EXPECT_TRUE(its_optimizer.step().applied());
    }
  }
}

std::string load_error(torch::nn::Module& net, const std::string& path) {
  try {
    load_network(net, path);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(LoadNetwork, AnErrorNamesTheFileAndChangesNothing) {
  TinyNet net;
  const auto before = values_of(*net);
  const std::string other = path_of("other");
  torch::save(Line(), other);
  EXPECT_THAT(load_error(*net, other), HasSubstr(other));
  EXPECT_THAT(load_error(*net, other), HasSubstr("has no 'first"));
  EXPECT_THAT(load_error(*net, path_of("missing")), HasSubstr(path_of("missing")));
  const std::string broken = path_of("broken");
  std::ofstream(broken) << "no archive";
  EXPECT_THAT(load_error(*net, broken), HasSubstr(broken));
  EXPECT_TRUE(same_values(values_of(*net), before));
}

}  // namespace
}  // namespace mezzo::amp
