#include <gmock/gmock.h>

#include <limits>

#include "amp/training.h"
#include "mezzo/error.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr auto kNone = std::nullopt;

TEST(LevelDefaults, AreTheTablesOfTheOriginals) {
  const std::vector<Properties> expected{
      {true, "O0", at::kFloat, false, kNone, false, 1.0},
      {true, "O1", kNone, true, kNone, kNone, "dynamic"},
      {true, "O2", at::kHalf, false, true, true, "dynamic"},
      {true, "O3", at::kHalf, false, false, false, 1.0},
      {true, "O4", kNone, true, kNone, kNone, 1.0},
      {true, "O5", at::kBFloat16, false, true, true, 1.0},
  };
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    EXPECT_EQ(level_defaults(kLevels[i]), expected[i]) << kLevels[i];
  }
}

TEST(LevelDefaults, AreInForceWhenNothingElseIsAsked) {
  for (const std::string& level : kLevels) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    EXPECT_EQ(model.properties(), level_defaults(level));
    EXPECT_EQ(optimizer.properties(), level_defaults(level));
  }
}

TEST(LevelDefaults, AnUnknownLevelIsAnErrorThatTellsTheLetterFromTheDigit) {
  for (const std::string level : {"01", "O6", "", "o1", "Half"}) {
    EXPECT_THAT([&] { level_defaults(level); }, ThrowsMessage<ConfigError>(HasSubstr("letter O")))
        << level;
  }
}

struct Refused {
  const char* name;
  Options options;
  const char* part;
};

TEST(Options, ThatContradictTheLevelOrEachOtherAreRefused) {
  const std::vector<Refused> rows{
      {"half model at O1", {.opt_level = "O1", .cast_model_type = at::kHalf}, "O2"},
      {"bfloat16 model at O4", {.opt_level = "O4", .cast_model_type = at::kBFloat16}, "O5"},
      {"batch norms at O1",
       {.opt_level = "O1", .keep_batchnorm_fp32 = true},
       "keep_batchnorm_fp32"},
      {"batch norms at O4",
       {.opt_level = "O4", .keep_batchnorm_fp32 = false},
       "keep_batchnorm_fp32"},
      {"masters at O1", {.opt_level = "O1", .master_weights = false}, "master_weights"},
      {"patches at O0",
       {.opt_level = "O0", .patch_torch_functions = true},
       "patch_torch_functions"},
      {"patches at O2",
       {.opt_level = "O2", .patch_torch_functions = true},
       "patch_torch_functions"},
      {"integer model", {.opt_level = "O2", .cast_model_type = at::kInt}, "cast_model_type"},
      {"complex model",
       {.opt_level = "O3", .cast_model_type = at::kComplexFloat},
       "cast_model_type"},
      {"integer outputs", {.cast_model_outputs = at::kLong}, "cast_model_outputs"},
      {"no losses", {.num_losses = 0}, "num_losses"},
      {"floor above ceiling", {.min_loss_scale = 8.0, .max_loss_scale = 4.0}, "above"},
      {"negative floor", {.min_loss_scale = -1.0}, "min_loss_scale"},
      {"infinite ceiling",
       {.max_loss_scale = std::numeric_limits<double>::infinity()},
       "max_loss_scale"},
      {"no start", {.init_loss_scale = 0.0}, "init_loss_scale"},
      {"no interval", {.growth_interval = 0}, "growth_interval"},
      {"verbosity", {.verbosity = 3}, "verbosity"},
      {"dynamic without check", {.check_finite = false}, "check_finite"},
      {"policy of another type",
       {.opt_level = "O1", .policy = Policy::defaults(at::kBFloat16)},
       "policy"},
  };
  for (const Refused& row : rows) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    const auto before = values_of(*net);
    EXPECT_THAT([&] { initialize(net, sgd, row.options); },
                ThrowsMessage<ConfigError>(HasSubstr(row.part)))
        << row.name;
    EXPECT_TRUE(same_values(values_of(*net), before)) << row.name;
  }
}

TEST(Options, ThatTheOriginalAcceptsAreAccepted) {
  const std::vector<Options> rows{
      {.opt_level = "O1", .cast_model_type = at::kFloat},
      {.opt_level = "O1", .cast_model_type = at::ScalarType::Undefined},
      {.opt_level = "O1", .patch_torch_functions = false},
      {.opt_level = "O1", .loss_scale = 128.0},
      {.opt_level = "O0", .loss_scale = "dynamic"},
      {.opt_level = "O0", .keep_batchnorm_fp32 = true, .master_weights = true},
      {.opt_level = "O2", .keep_batchnorm_fp32 = false},
      {.opt_level = "O2", .master_weights = false},
      {.opt_level = "O2", .cast_model_type = at::kBFloat16},
      {.opt_level = "O3", .keep_batchnorm_fp32 = true, .master_weights = true},
      {.opt_level = "O3", .loss_scale = "128.0"},
      {.opt_level = "O0", .policy = Policy::defaults(at::kBFloat16)},
      {.opt_level = "O2", .policy = Policy::defaults(at::kBFloat16)},
  };
  for (Options options : rows) {
    options.verbosity = 0;
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, options);
    scale_loss(loss_of(model), optimizer).backward();
    optimizer.step();
    EXPECT_EQ(optimizer.applied_steps() + optimizer.skipped_steps(), 1);
  }
}

TEST(Options, FromFlagsReadsTheWordsOfTheOriginals) {
  const Options options = Options::from_flags({{"opt_level", "O2"},
                                               {"keep_batchnorm_fp32", "False"},
                                               {"loss_scale", "128.0"},
                                               {"master_weights", "None"},
                                               {"cast_model_type", "torch.float16"},
                                               {"num_losses", "3"},
                                               {"min_loss_scale", "0.5"}});
  EXPECT_EQ(options.opt_level, "O2");
  EXPECT_EQ(options.keep_batchnorm_fp32, false);
  EXPECT_EQ(options.loss_scale->value(), 128.0);
  EXPECT_FALSE(options.master_weights.has_value());
  EXPECT_EQ(options.cast_model_type, at::kHalf);
  EXPECT_EQ(options.num_losses, 3);
  EXPECT_EQ(options.min_loss_scale, 0.5);
  EXPECT_EQ(Options::from_flags({{"cast_model_type", "False"}}).cast_model_type,
            at::ScalarType::Undefined);
  EXPECT_TRUE(Options::from_flags({{"loss_scale", "dynamic"}}).loss_scale->is_dynamic());
}

TEST(Options, FromFlagsRefusesUnknownKeysAndOtherValues) {
  EXPECT_THAT(
      [] {
        Options::from_flags({{"opt-level", "O1"}});
      },
      ThrowsMessage<ConfigError>(HasSubstr("opt_level")));
  for (const auto& [key, value] :
       std::map<std::string, std::string>{{"keep_batchnorm_fp32", "maybe"},
                                          {"num_losses", "2x"},
                                          {"cast_model_type", "int32"},
                                          {"loss_scale", "-1"},
                                          {"policy", "/nowhere/policy.toml"}}) {
    EXPECT_THROW(Options::from_flags({{key, value}}), ConfigError) << key;
  }
}

TEST(LossScale, TakesNumbersTextAndDynamic) {
  EXPECT_EQ(LossScale(128).value(), 128.0);
  EXPECT_EQ(LossScale(0.5F).value(), 0.5);
  EXPECT_EQ(LossScale("128.0").value(), 128.0);
  EXPECT_EQ(LossScale(std::string("1e3")).value(), 1000.0);
  EXPECT_EQ(LossScale(" +2 ").value(), 2.0);
  EXPECT_TRUE(LossScale("dynamic").is_dynamic());
  EXPECT_FALSE(LossScale("1").is_dynamic());
  EXPECT_EQ(LossScale(128).to_string(), "128");
}

TEST(LossScale, RefusesWhatCannotScale) {
  for (const char* text :
       {"", "abc", "0", "-1", "inf", "nan", "1e60", "128x", "1e-60", "dynamics"}) {
    EXPECT_THROW(LossScale{text}, ConfigError) << text;
  }
  for (const double value : {0.0, -2.0, 1e300, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(LossScale{value}, ConfigError) << value;
  }
  EXPECT_THROW(LossScale{static_cast<const char*>(nullptr)}, ConfigError);
}

}  // namespace
}  // namespace mezzo::amp
