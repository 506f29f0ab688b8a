#include "mezzo/checkpoint.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <tuple>
#include <typeinfo>

#include "amp/checkpoint_parts.h"
#include "amp/checkpoint_training.h"
#include "amp/param_state.h"
#include "amp/safetensors.h"
#include "mezzo/error.h"
#include "mezzo/optim.h"
#include "mezzo/safetensors.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Stops in the middle of an accumulation that has overflowed, and goes on from the file in a
/// training that had gone another way for `warm_up` micro-batches.
void expect_continues(const std::string& level, const LossScale& scale, const std::string& kind,
                      int warm_up) {
  const std::string name =
      level + " " + scale.to_string() + " " + kind + " after " + std::to_string(warm_up);
  const File file;
  Training straight(level, kind, scale);
  straight.play(0, 12);
  Training first(level, kind, scale);
  first.play(0, 5);
  save_checkpoint(file.path, first.model, first.optimizer);
  Training second(level, kind, scale, 7);
  second.play(0, warm_up);
  load_checkpoint(file.path, second.model, second.optimizer);
  second.play(5, 12);
  EXPECT_TRUE(same_values(second.everything(), straight.everything())) << name;
  EXPECT_EQ(second.optimizer.applied_steps(), straight.optimizer.applied_steps()) << name;
  EXPECT_EQ(second.optimizer.skipped_steps(), straight.optimizer.skipped_steps()) << name;
  EXPECT_EQ(state_dict(second.optimizer), state_dict(straight.optimizer)) << name;
}

TEST(Checkpoint, ContinuesBitForBitForEveryPairOfLevelScaleOptimizerAndMoment) {
  for (std::size_t level = 0; level < kLevels.size(); ++level) {
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
      const bool dynamic = (level + kind) % 2 == 0;
      expect_continues(kLevels[level], dynamic ? LossScale("dynamic") : LossScale(128),
                       kKinds[kind], (level + kind / 2) % 2 == 0 ? 0 : 3);
    }
  }
}

TEST(CheckpointSlow, ContinuesBitForBitForEveryLevelScaleOptimizerAndMoment) {
  for (const std::string& level : kLevels) {
    for (const LossScale scale : {LossScale(128), LossScale("dynamic")}) {
      for (const std::string& kind : kKinds) {
        for (const int warm_up : {0, 3}) expect_continues(level, scale, kind, warm_up);
      }
    }
  }
}

/// They add up in float: rounded to half in the file, they would be others.
TEST(Checkpoint, KeepsGradientsThatSeveralBlocksLeftScaledToTheLastBit) {
  for (const std::string& level : kLevels) {
    const File file;
    Training straight(level, "SGD", "dynamic");
    const auto block = [](Training& training, double factor, bool delay_unscale) {
      const at::Tensor loss = loss_of(training.model, inputs() * factor);
      scale_loss(loss, training.optimizer, {.delay_unscale = delay_unscale}).backward();
    };
    block(straight, 1, false);
    block(straight, 1.5, true);
    save_checkpoint(file.path, straight.model, straight.optimizer);
    Training again(level, "SGD", "dynamic", 7);
    load_checkpoint(file.path, again.model, again.optimizer);
    for (Training* training : {&straight, &again}) {
      block(*training, 2, false);
      EXPECT_TRUE(training->optimizer.step().applied()) << level;
    }
    EXPECT_TRUE(same_values(again.everything(), straight.everything())) << level;
  }
}

TEST(Checkpoint, WhatTheFileHasNoStateForHasNoneAfterLoading) {
  for (const std::string& kind : kKinds) {
    const File file;
    Training straight("O2", kind, "dynamic");
    save_checkpoint(file.path, straight.model, straight.optimizer);  // before the first step
    straight.play(0, 6);
    Training again("O2", kind, "dynamic", 7);
    again.play(0, 4);
    load_checkpoint(file.path, again.model, again.optimizer);
    again.play(0, 6);
    EXPECT_TRUE(same_values(again.everything(), straight.everything())) << kind;
  }
}

TEST(Checkpoint, IsNeitherSavedNorLoadedInsideAScope) {
  const File file;
  Training training("O1", "SGD", "dynamic");
  save_checkpoint(file.path, training.model, training.optimizer);
  const ScaledLoss scaled = scale_loss(loss_of(training.model), training.optimizer);
  const auto message = ThrowsMessage<Error>(HasSubstr("scope is open"));
  EXPECT_THAT([&] { save_checkpoint(file.path, training.model, training.optimizer); }, message);
  EXPECT_THAT([&] { load_checkpoint(file.path, training.model, training.optimizer); }, message);
}

TEST(Checkpoint, OfOneLevelLoadsIntoAnother) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"O2", "O0"}, {"O0", "O2"}, {"O1", "O4"}, {"O5", "O2"}}) {
    const File file;
    Training source(from, "Adam", "dynamic");
    source.play(0, 4);
    save_checkpoint(file.path, source.model, source.optimizer);
    Training target(to, "Adam", "dynamic", 9);
    load_checkpoint(file.path, target.model, target.optimizer);
    for (const auto& item : model_state_dict(source.model)) {
      EXPECT_TRUE(torch::equal(item.value(), model_state_dict(target.model)[item.key()]))
          << item.key();
    }
    target.play(4, 8);
    EXPECT_GT(target.optimizer.applied_steps(), 2);
  }
}

/// The state tensors of all parameters in turn.
std::vector<at::Tensor> states_of(Training& training) {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& master : master_params(training.optimizer)) {
    auto& state = *training.inner->state().at(master.unsafeGetTensorImpl());
    detail::visit_tensors(state, [&](at::Tensor& tensor) { tensors.push_back(tensor.clone()); });
  }
  return tensors;
}

void expect_near(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected,
                 double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const at::Tensor off = got[i].to(at::kDouble) - expected[i].to(at::kDouble);
    EXPECT_LT(off.abs().max().item<double>(), tolerance) << what << ' ' << i;
  }
}

TEST(Checkpoint, FusedAndPlainOptimizersCarryOver) {
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"Adam", "FusedAdamWithL2"},
                                                        {"AdamW", "FusedAdam"},
                                                        {"FusedAdamWithL2", "Adam"},
                                                        {"FusedAdam", "AdamW"},
                                                        {"SGD", "FusedSGD"},
                                                        {"FusedSGD", "SGD"},
                                                        {"Adagrad", "FusedAdagrad"},
                                                        {"FusedAdagrad", "Adagrad"}}) {
    const File file;
    Training source("O2", from, "dynamic");
    source.play(0, 4);
    save_checkpoint(file.path, source.model, source.optimizer);
    Training target("O2", to, "dynamic", 9);
    load_checkpoint(file.path, target.model, target.optimizer);
    expect_near(states_of(target), states_of(source), 1e-30, from + " state");
    for (Training* each : {&source, &target}) each->play(6, 12);
    EXPECT_EQ(target.optimizer.applied_steps(), 5);
    expect_near(states_of(target), states_of(source), 2e-3, from + " state of five steps");
    expect_near(target.everything(), source.everything(), 2e-3, from);
  }
}

TEST(Checkpoint, AdamIsNotAdamWNeitherFused) {
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"Adam", "AdamW"},
                                                        {"Adam", "FusedAdam"},
                                                        {"FusedAdam", "Adam"},
                                                        {"AdamW", "FusedAdamWithL2"},
                                                        {"FusedAdamWithL2", "AdamW"}}) {
    const File file;
    Training source("O2", from, "dynamic");
    source.play(0, 4);
    save_checkpoint(file.path, source.model, source.optimizer);
    Training target("O2", to, "dynamic", 9);
    EXPECT_THAT([&] { load_checkpoint(file.path, target.model, target.optimizer); },
                ThrowsMessage<Error>(HasSubstr("an optimizer of class Adam")))
        << from << ' ' << to;
  }
  // Between two that are fused the file's options say which.
  const File file;
  Training source("O2", "FusedAdamWithL2", "dynamic");
  save_checkpoint(file.path, source.model, source.optimizer);
  Training target("O2", "FusedAdam", "dynamic", 9);
  load_checkpoint(file.path, target.model, target.optimizer);
  EXPECT_FALSE(static_cast<optim::FusedAdamOptions&>(target.inner->param_groups()[0].options())
                   .adam_w_mode());
}

/// A file as versions wrote it that had no name of their own for a class.
void write_old_class(const std::string& path, const std::string& name) {
  detail::SafetensorsFile file = detail::load_safetensors_file(path);
  file.metadata.at("optimizer.0.class") = name;
  file.metadata["checksum"] = detail::checksum_of(file);
  save_safetensors(path, file.tensors, file.metadata);
}

TEST(Checkpoint, NamesClassesByItsOwnNamesAndReadsTheCompilersInOldFiles) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases{
      {"FusedLAMB", "FusedLAMB", typeid(optim::FusedLAMB).name()},
      {"FusedNovoGrad", "FusedNovoGrad", typeid(optim::FusedNovoGrad).name()},
      {"FusedAdagrad", "Adagrad", typeid(optim::FusedAdagrad).name()}};
  for (const auto& [kind, name, old_name] : cases) {
    const File file;
    Training source("O2", kind, "dynamic");
    source.play(0, 4);
    save_checkpoint(file.path, source.model, source.optimizer);
    EXPECT_EQ(detail::load_safetensors_file(file.path).metadata.at("optimizer.0.class"), name);
    write_old_class(file.path, old_name);
    Training target("O2", kind, "dynamic", 9);
    load_checkpoint(file.path, target.model, target.optimizer);
    expect_near(states_of(target), states_of(source), 1e-30, kind);
    Training other("O2", "SGD", "dynamic", 9);
    EXPECT_THAT([&] { load_checkpoint(file.path, other.model, other.optimizer); },
                ThrowsMessage<Error>(HasSubstr("of class " + name + "; got SGD")));
  }
}

TEST(Checkpoint, AdagradHasItsStatesAfterAFileOfAFusedOneThatWasNotSteppedYet) {
  const File file;
  Training source("O2", "FusedAdagrad", "dynamic");
  save_checkpoint(file.path, source.model, source.optimizer);
  Training target("O2", "Adagrad", "dynamic", 9);
  load_checkpoint(file.path, target.model, target.optimizer);
  for (Training* each : {&source, &target}) each->play(6, 8);
  expect_near(target.everything(), source.everything(), 2e-3, "the first step");
}

TEST(Checkpoint, KeepsWhatTheProgramPutIn) {
  const File file;
  Training training("O2", "SGD", "dynamic");
  CheckpointOptions options;
  options.rng_state = true;
  options.tensors["average"] = torch::tensor({1.0F, 2.0F});
  options.entries["epoch"] = "three \"3\"\n";
  torch::manual_seed(11);
  save_checkpoint(file.path, training.model, training.optimizer, options);
  const at::Tensor drawn = torch::rand({4});
  const Checkpoint loaded =
      load_checkpoint(file.path, training.model, training.optimizer, {.rng_state = true});
  EXPECT_TRUE(torch::equal(loaded.tensors.at("average"), options.tensors["average"]));
  EXPECT_EQ(loaded.entries, options.entries);
  EXPECT_TRUE(torch::equal(torch::rand({4}), drawn));
  options.tensors["sparse"] = torch::eye(2).to_sparse();
  EXPECT_THAT([&] { save_checkpoint(file.path, training.model, training.optimizer, options); },
              ThrowsMessage<ConfigError>(HasSubstr("'sparse'")));
}

TEST(Checkpoint, TellsHowTheTrainingWasSetUp) {
  const File file;
  Training training("O2", "SGD", "dynamic");
  save_checkpoint(file.path, training.model, training.optimizer);
  const auto metadata = detail::load_safetensors_file(file.path).metadata;
  EXPECT_EQ(metadata.at("level"), "O2");
  EXPECT_EQ(metadata.at("loss_scale"), "dynamic");
  EXPECT_EQ(metadata.at("option.keep_batchnorm_fp32"), "true");
  EXPECT_EQ(metadata.at("option.growth_interval"), "3");
  EXPECT_EQ(metadata.at("option.cast_model_type"), "Half");
}

TEST(Checkpoint, IsReadPieceByPieceAsSafetensors) {
  const File file;
  Training training("O2", "SGD", "dynamic");
  training.play(0, 4);
  save_checkpoint(file.path, training.model, training.optimizer);
  const auto tensors = load_safetensors(file.path);
  EXPECT_TRUE(torch::equal(tensors["model.0.first.weight"], master_params(training.optimizer)[0]));
}

TEST(Checkpoint, DamagedTruncatedForeignAndNewerFilesAreErrorsThatChangeNothing) {
  const File file;
  Training training("O2", "Adam", "dynamic");
  training.play(0, 3);
  save_checkpoint(file.path, training.model, training.optimizer);
  const std::string good = file.read();
  training.play(3, 6);
  const auto before = training.everything();
  const auto scales = state_dict(training.optimizer);
  const auto refused = [&](const std::string& bytes, const char* name) {
    file.write(bytes);
    EXPECT_THROW(load_checkpoint(file.path, training.model, training.optimizer), Error) << name;
    EXPECT_TRUE(same_values(training.everything(), before)) << name;
    EXPECT_EQ(state_dict(training.optimizer), scales) << name;
  };
  for (const double part : {0.0, 0.0001, 0.05, 0.3, 0.9, 0.999}) {
    refused(good.substr(0, static_cast<std::size_t>(static_cast<double>(good.size()) * part)),
            "truncated");
  }
  refused(good + "x", "longer");
  for (std::size_t i = 9; i < good.size(); i += 1 + good.size() / 97) {
    std::string damaged = good;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    refused(damaged, "one bit differs");
  }
  refused("this is no checkpoint at all, but long enough to be read as one", "foreign");
  std::string newer = good;
  const auto place = newer.find("\"version\":\"1\"");
  ASSERT_NE(place, std::string::npos);
  newer[place + 11] = '9';
  file.write(newer);
  EXPECT_THAT([&] { load_checkpoint(file.path, training.model, training.optimizer); },
              ThrowsMessage<Error>(HasSubstr("version 9")));
  EXPECT_THROW(load_checkpoint("/nowhere/at/all", training.model, training.optimizer), Error);
  EXPECT_THROW(save_checkpoint("/nowhere/at/all", training.model, training.optimizer), Error);
  file.write(good);
  load_checkpoint(file.path, training.model, training.optimizer);
}

TEST(Checkpoint, AnotherNetworkOrOptimizerClassIsAnErrorThatChangesNothing) {
  const File file;
  Training training("O2", "Adam", "dynamic");
  save_checkpoint(file.path, training.model, training.optimizer);
  Training other("O2", "SGD", "dynamic", 8);
  const auto before = other.everything();
  EXPECT_THAT([&] { load_checkpoint(file.path, other.model, other.optimizer); },
              ThrowsMessage<Error>(HasSubstr("class Adam")));
  EXPECT_TRUE(same_values(other.everything(), before));
  // They treat weight decay differently.
  Training decoupled("O2", "AdamW", "dynamic", 8);
  EXPECT_THAT([&] { load_checkpoint(file.path, decoupled.model, decoupled.optimizer); },
              ThrowsMessage<Error>(HasSubstr("class Adam; got AdamW")));
  Line line;
  torch::optim::Adam adam(line->parameters(), 0.1);
  auto [model, optimizer] = initialize(line, adam, at_level("O2"));
  const auto load = [&model = model, &optimizer = optimizer, &file] {
    load_checkpoint(file.path, model, optimizer);
  };
  EXPECT_THAT(load, ThrowsMessage<Error>(HasSubstr("'line.weight'")));
}

TEST(Checkpoint, HoldsSeveralModelsAndOptimizers) {
  const File file;
  TinyNet first;
  Line second;
  torch::optim::SGD first_sgd(first->parameters(), 0.1);
  torch::optim::Adam second_adam(second->parameters(), 0.1);
  auto [models, optimizers] = initialize(std::tie(first, second), std::tie(first_sgd, second_adam),
                                         {.opt_level = "O2", .num_losses = 2, .verbosity = 0});
  save_checkpoint(file.path, models, optimizers);
  auto& [a, b] = models;
  auto& [opt_a, opt_b] = optimizers;
  opt_a.set_loss_scale(8, 1);
  load_checkpoint(file.path, std::tie(a, b), std::tie(opt_a, opt_b));
  EXPECT_EQ(opt_a.loss_scale(1), 65536);
  EXPECT_THROW(load_checkpoint(file.path, a, opt_a), Error) << "two models are in the file";
}

}  // namespace
}  // namespace mezzo::amp
