#include "mezzo/model_values.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "amp/training.h"
#include "mezzo/error.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

void train(const Model<TinyNet>& model, Optimizer& optimizer, int steps = 3) {
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    scale_loss(loss_of(model), optimizer).backward();
    optimizer.step();
  }
}

std::vector<at::Tensor> copies_of(const Optimizer& optimizer) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& master : master_params(optimizer))
    copies.push_back(master.detach().clone());
  return copies;
}

TEST(ModelStateDict, HoldsFloatValuesOfTheMastersUnderTheNetworksNames) {
  for (const std::string& level : kLevels) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    train(model, optimizer);
    const auto values = model_state_dict(model);
    EXPECT_EQ(values.size(), net->named_parameters().size() + net->named_buffers().size());
    EXPECT_EQ(values["norm.num_batches_tracked"].scalar_type(), at::kLong);
    EXPECT_EQ(values["first.weight"].scalar_type(), at::kFloat);
    EXPECT_EQ(values["norm.running_mean"].scalar_type(), at::kFloat);
    const at::Tensor stepped = master_params(optimizer)[0].to(at::kFloat);
    EXPECT_TRUE(torch::equal(values["first.weight"], stepped)) << level;
    values["first.weight"].zero_();
    EXPECT_FALSE(net->first->weight.eq(0).all().item<bool>()) << "copies";
  }
}

TEST(ModelStateDict, LoadsAcrossLevelsBitForBit) {
  for (const std::string from : {"O0", "O1", "O2", "O5"}) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(from));
    train(model, optimizer);
    const auto values = model_state_dict(model);
    for (const std::string to : {"O0", "O2", "O4", "O5"}) {
      TinyNet other;
      torch::optim::SGD other_sgd(other->parameters(), 0.1);
      auto [other_model, other_optimizer] = initialize(other, other_sgd, at_level(to));
      train(other_model, other_optimizer);
      load_model_state_dict(other_model, values);
      const auto loaded = model_state_dict(other_model);
      for (const auto& item : values) {
        EXPECT_TRUE(torch::equal(loaded[item.key()], item.value()))
            << from << " " << to << " " << item.key();
      }
      EXPECT_TRUE(torch::equal(other->first->weight,
                               values["first.weight"].to(other->first->weight.scalar_type())));
    }
  }
}

TEST(ModelStateDict, WhatDoesNotFitIsAnErrorAndChangesNothing) {
  TinyNet net;
  auto model = initialize(net, at_level("O2"));
  const auto before = values_of(*net);
  auto values = model_state_dict(model);
  torch::OrderedDict<std::string, at::Tensor> fewer;
  fewer.insert("first.weight", values["first.weight"] + 1);
  EXPECT_THAT([&] { load_model_state_dict(model, fewer); },
              ThrowsMessage<Error>(HasSubstr("'first.bias'")));
  EXPECT_TRUE(same_values(values_of(*net), before));
  load_model_state_dict(model, fewer, /*strict=*/false);
  EXPECT_FALSE(same_values(values_of(*net), before));
  values.insert("third.weight", torch::ones({2}));
  EXPECT_THAT([&] { load_model_state_dict(model, values); },
              ThrowsMessage<Error>(HasSubstr("'third.weight'")));
  values["first.weight"] = torch::ones({3, 3});
  EXPECT_THAT([&] { load_model_state_dict(model, values, false); },
              ThrowsMessage<Error>(HasSubstr("[3, 3]")));
}

TEST(Archives, ModelsSaveWhatABareFloatNetworkLoads) {
  for (const std::string& level : kLevels) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    train(model, optimizer);
    std::stringstream file;
    torch::save(model, file);
    TinyNet plain;
    torch::load(plain, file);
    EXPECT_EQ(plain->first->weight.scalar_type(), at::kFloat);
    EXPECT_TRUE(torch::equal(plain->first->weight, model_state_dict(model)["first.weight"]))
        << level;
    EXPECT_TRUE(torch::equal(plain->norm->running_var, model_state_dict(model)["norm.running_var"]))
        << level;
  }
}

TEST(Archives, ModelsLoadFilesOfModelsFloatNetworksAndHalfNetworks) {
  TinyNet source;
  for (const auto type : {at::kFloat, at::kHalf}) {
    source->to(type);
    std::stringstream file;
    torch::save(source, file);
    for (const std::string& level : kLevels) {
      TinyNet net;
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [model, optimizer] = initialize(net, sgd, at_level(level));
      train(model, optimizer);
      file.seekg(0);
      torch::load(model, file);
      EXPECT_TRUE(torch::allclose(model_state_dict(model)["first.weight"],
                                  source->first->weight.to(at::kFloat), 1e-2, 1e-3))
          << level;
      train(model, optimizer);
    }
  }
}

TEST(Archives, AFileOfAnotherNetworkIsAnErrorAndChangesNothing) {
  std::stringstream file;
  torch::save(Line(), file);
  TinyNet net;
  auto model = initialize(net, at_level("O2"));
  const auto before = values_of(*net);
  EXPECT_THROW(torch::load(model, file), Error);
  EXPECT_TRUE(same_values(values_of(*net), before));
}

TEST(Archives, TheSeedsWorkflowContinuesBitForBit) {
  const std::array<std::string, 3> kEntries{"model", "optimizer", "amp"};
  for (const std::string& level : kLevels) {
    const auto make_adam = [](TinyNet& net) {
      return torch::optim::Adam(net->parameters(), torch::optim::AdamOptions(0.01).eps(1e-4));
    };
    torch::manual_seed(4);
    TinyNet net;
    auto adam = make_adam(net);
    auto [model, optimizer] = initialize(net, adam, at_level(level));
    train(model, optimizer, 5);
    std::stringstream file;
    {
      torch::serialize::OutputArchive archive;
      torch::serialize::OutputArchive model_entry(archive.compilation_unit());
      torch::serialize::OutputArchive optimizer_entry(archive.compilation_unit());
      torch::serialize::OutputArchive amp_entry(archive.compilation_unit());
      model_entry << model;
      optimizer_entry << optimizer;
      amp_entry << state_dict(optimizer);
      archive.write("model", model_entry);
      archive.write("optimizer", optimizer_entry);
      archive.write("amp", amp_entry);
      archive.save_to(file);
    }
    train(model, optimizer, 5);

    std::vector<int> order{0, 1, 2};
    do {
      for (const int warm_up : {0, 1}) {
        TinyNet again;
        auto again_adam = make_adam(again);
        auto [again_model, again_optimizer] = initialize(again, again_adam, at_level(level));
        if (warm_up > 0) train(again_model, again_optimizer, warm_up);
        file.clear();
        file.seekg(0);
        torch::serialize::InputArchive archive;
        archive.load_from(file);
        for (const int entry : order) {
          torch::serialize::InputArchive part;
          archive.read(kEntries.at(static_cast<std::size_t>(entry)), part);
          if (entry == 0) part >> again_model;
          if (entry == 1) part >> again_optimizer;
          if (entry == 2) {
            StateDict scales;
            part >> scales;
            load_state_dict(again_optimizer, scales);
          }
        }
        train(again_model, again_optimizer, 5);
        EXPECT_TRUE(same_values(copies_of(again_optimizer), copies_of(optimizer))) << level;
        EXPECT_EQ(again_optimizer.applied_steps() + again_optimizer.skipped_steps(), 10) << level;
        EXPECT_EQ(state_dict(again_optimizer), state_dict(optimizer)) << level;
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(Archives, AFileOfAnotherOptimizerIsAnErrorAndChangesNothing) {
  TinyNet source;
  torch::optim::Adam adam(source->parameters(), 0.1);
  auto [source_model, source_optimizer] = initialize(source, adam, at_level("O2"));
  train(source_model, source_optimizer);
  std::stringstream file;
  torch::save(source_optimizer, file);

  const auto trained = [](std::stringstream* read) {
    torch::manual_seed(8);
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
    train(model, optimizer, 2);
    if (read != nullptr) {
      EXPECT_ANY_THROW(torch::load(optimizer, *read));
    }
    train(model, optimizer, 2);
    return copies_of(optimizer);
  };
  EXPECT_TRUE(same_values(trained(&file), trained(nullptr)));
  std::stringstream noise("neither an archive nor anything else");
  EXPECT_TRUE(same_values(trained(&noise), trained(nullptr)));
}

TEST(Archives, OptimizerStateIsSavedInFloat) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto [model, optimizer] = initialize(net, sgd, at_level("O3"));
  train(model, optimizer);
  std::stringstream file;
  torch::save(optimizer, file);
  TinyNet plain;
  torch::optim::SGD plain_sgd(plain->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::load(plain_sgd, file);
  ASSERT_EQ(plain_sgd.state().size(), plain->parameters().size());
  for (const auto& [key, state] : plain_sgd.state()) {
    const auto& momentum = static_cast<torch::optim::SGDParamState&>(*state).momentum_buffer();
    EXPECT_EQ(momentum.scalar_type(), at::kFloat);
  }
  ASSERT_EQ(sgd.state().size(), net->parameters().size());
  for (const auto& [key, state] : sgd.state()) {
    const auto& momentum = static_cast<torch::optim::SGDParamState&>(*state).momentum_buffer();
    EXPECT_EQ(momentum.scalar_type(), at::kHalf) << "the training goes on as it was";
  }
}

}  // namespace
}  // namespace mezzo::amp
