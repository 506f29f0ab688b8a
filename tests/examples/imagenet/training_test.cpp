#include "examples/imagenet/training.h"

#include <gmock/gmock.h>
#include <mezzo/error.h>
#include <mezzo/safetensors.h>
#include <torch/torch.h>

namespace examples::imagenet {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string failure(const Workshop& shop, const Words& words) {
  try {
    shop.train(words);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(Training, LearnsWhatIsOnThePictures) {
  const Workshop shop;
  const Trained trained =
      shop.train({"--epochs", "8", "--warmup-epochs", "1", "--lr", "2", "--opt-level", "O1"});
  EXPECT_EQ(trained.code, 0);
  ASSERT_EQ(trained.run.epochs.size(), 8U);
  EXPECT_EQ(trained.run.steps.size(), 24U);
  EXPECT_LT(trained.run.epochs.back().loss, trained.run.epochs.front().loss);
  EXPECT_GE(trained.run.epochs.back().test_accuracy.value(), 0.6);
  EXPECT_TRUE(trained.run.ended);
  EXPECT_TRUE(std::filesystem::exists(shop.file("model_best.safetensors")));
}

TEST(Training, IsAnotherOneWithEveryOption) {
  const Workshop shop;
  const std::uint64_t plain = shop.train({}).weights;
  for (const Words& words : std::vector<Words>{{"--lr", "0.5"},
                                               {"--momentum", "0"},
                                               {"--wd", "0.1"},
                                               {"--label-smoothing", "0.2"},
                                               {"--warmup-epochs", "0"},
                                               {"--seed", "2"},
                                               {"--min-crop", "0.9"},
                                               {"--image-size", "20"},
                                               {"-b", "6"},
                                               {"-a", "mobilenet_v2", "--epochs", "1"},
                                               {"--steps", "1"},
                                               {"--epochs", "1"},
                                               {"--start-epoch", "1"},
                                               {"--opt-level", "O1"},
                                               {"--opt-level", "O2"}}) {
    const Trained other = shop.train(words);
    EXPECT_EQ(other.code, 0) << words[0];
    EXPECT_NE(other.weights, plain) << words[0] << ' ' << words[1];
  }
  const Words rate{"--warmup-epochs", "0"};
  const std::uint64_t full = shop.train(rate).weights;
  for (const char* option : {"--lr-epochs", "--lr-last-epoch"})
    EXPECT_NE(shop.train({"--warmup-epochs", "0", option, "1"}).weights, full) << option;
}

TEST(Training, GivesTheSameBitsAgainAndWithAnyNumberOfWorkers) {
  const Workshop shop;
  const std::uint64_t expected = shop.train({"-j", "0"}).weights;
  EXPECT_EQ(shop.train({"-j", "1"}).weights, expected);
  EXPECT_EQ(shop.train({"-j", "5", "--deterministic"}).weights, expected);
}

TEST(Training, ComputesTheSameInBothLayoutsAndRecomputed) {
  const Workshop shop;
  const auto weight = [&](const Words& words) {
    Words all{"--epochs", "1"};
    all.insert(all.end(), words.begin(), words.end());
    shop.train(all);
    return mezzo::load_safetensors(shop.file("run.safetensors"))["model.0.conv1.weight"];
  };
  const at::Tensor plain = weight({});
  EXPECT_TRUE(torch::equal(weight({"--recompute"}), plain));
  EXPECT_TRUE(torch::allclose(weight({"--channels-last"}), plain, 1e-2, 1e-3));
}

TEST(Training, HandsPrecisionOn) {
  const Workshop shop;
  const auto scale = [&](const Words& words) { return shop.train(words).run.steps.back().scale; };
  EXPECT_EQ(scale({"--opt-level", "O1", "--loss-scale", "128.0"}), 128);
  EXPECT_EQ(scale({"--opt-level", "O2", "--loss-scale", "4"}), 4);
  EXPECT_EQ(scale({"--opt-level", "O3", "--keep-batchnorm-fp32", "True"}), 1);
  EXPECT_EQ(scale({"--how", "masters", "--loss-scale", "16"}), 16);
  EXPECT_EQ(scale({"--how", "handle", "--loss-scale", "32"}), 32);
  EXPECT_EQ(scale({"--how", "fp16_optimizer", "--static-loss-scale", "64"}), 64);
  EXPECT_GT(scale({"--how", "fp16_optimizer", "--dynamic-loss-scale"}), 64);
  EXPECT_THAT(failure(shop, {"--opt-level", "O1", "--keep-batchnorm-fp32", "True"}),
              HasSubstr("keep_batchnorm_fp32"));
  EXPECT_THAT(failure(shop, {"--how", "masters", "--dynamic-loss-scale"}),
              HasSubstr("has a static loss scale"));
  EXPECT_THAT(failure(shop, {"--how", "magic"}), HasSubstr("expected amp, fp16_optimizer"));
}

TEST(Training, EvaluatesTheAveragedWeights) {
  const Workshop shop;
  const auto told = [&](const Words& words) { return shop.train(words).run.messages; };
  const auto plain = told({}), averaged = told({"--ema", "0.9"});
  ASSERT_FALSE(plain.empty());
  EXPECT_NE(plain.back(), averaged.back());
  EXPECT_TRUE(
      mezzo::load_safetensors(shop.file("run.safetensors")).contains("average.0.conv1.weight"));
}

TEST(Training, EvaluatesTheMiddleOfWhatItResizes) {
  const Workshop shop;
  const Trained plain = shop.train({}), larger = shop.train({"--resize", "32"}, "larger");
  EXPECT_EQ(larger.weights, plain.weights);
  EXPECT_NE(larger.run.messages.back(), plain.run.messages.back());
}

TEST(Training, ReportsEverySoManySteps) {
  const Workshop shop;
  const auto steps = [&](const char* every) {
    std::vector<std::int64_t> seen;
    for (const auto& step : shop.train({"-p", every}).run.steps) seen.push_back(step.step);
    return seen;
  };
  EXPECT_EQ(steps("1"), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(steps("2"), (std::vector<std::int64_t>{2, 3, 5, 6}));
  EXPECT_EQ(steps("10"), (std::vector<std::int64_t>{3, 6}));
}

TEST(Training, WritesAPageAndEventFilesAndATrace) {
  const Workshop shop;
  shop.train({"--report", shop.file("page.html"), "--tensorboard", shop.file("events")});
  EXPECT_THAT(bytes_of(shop.file("page.html")), HasSubstr("<html"));
  EXPECT_FALSE(std::filesystem::is_empty(shop.file("events")));
  const Trained profiled = shop.train(
      {"--prof", "1", "--prof-file", shop.file("trace.json"), "--epochs", "9"}, "profiled");
  EXPECT_EQ(profiled.run.steps.size(), 11U);  // one before, ten of the trace
  EXPECT_THAT(bytes_of(shop.file("trace.json")), HasSubstr("aten::convolution"));
}

TEST(Training, EvaluatesACheckpointAndEnds) {
  const Workshop shop;
  const Trained trained = shop.train({}, "first");
  const Trained evaluated = shop.train({"-e", "--resume", shop.file("first.safetensors")});
  EXPECT_TRUE(evaluated.run.steps.empty());
  ASSERT_FALSE(evaluated.run.messages.empty());
  const std::string figures = evaluated.run.messages.back();
  EXPECT_THAT(figures, HasSubstr("test loss "));
  EXPECT_THAT(trained.run.messages.back(), HasSubstr(figures));
}

TEST(Training, BeginsWithTheWeightsOfAFile) {
  const Workshop shop;
  shop.train({}, "first");
  const auto loss = [&](const Words& words) { return shop.train(words).run.steps[0].loss; };
  const double fresh = loss({});
  const double pretrained = loss({"--pretrained", shop.file("first.safetensors")});
  EXPECT_NE(pretrained, fresh);
  const Workshop more(4);  // classes: the last layer stays fresh
  EXPECT_EQ(more.train({"--pretrained", shop.file("first.safetensors")}).code, 0);
  EXPECT_THAT(failure(shop, {"--pretrained", shop.file("first.safetensors"), "-a", "resnet18"}),
              AnyOf(HasSubstr("has no '"), HasSubstr("has another shape")));
  EXPECT_THAT(failure(shop, {"--pretrained", shop.file("none.safetensors")}),
              HasSubstr("none.safetensors"));
}

TEST(Training, NeedsNoImages) {
  const Workshop shop;
  const Trained trained =
      shop.train({"--synthetic", "--classes", "12", "--steps", "2", "--epochs", "1"}, "run", true);
  EXPECT_EQ(trained.code, 0);
  EXPECT_EQ(trained.run.steps.size(), 2U);
  EXPECT_EQ(mezzo::load_safetensors(shop.file("run.safetensors"))["model.0.fc.weight"].size(0), 12);
}

TEST(Training, TakesTheDeviceOfItsLocalRank) {
  const Workshop shop;
  EXPECT_THAT(failure(shop, {"--device", "cuda:97"}), HasSubstr("device 'cuda:97' is not there"));
  setenv("LOCAL_RANK", "96", 1);
  EXPECT_THAT(failure(shop, {"--cuda"}), HasSubstr("device 'cuda:96' is not there"));
  unsetenv("LOCAL_RANK");
  EXPECT_THAT(failure(shop, {"--cuda", "--local_rank", "95"}),
              HasSubstr("device 'cuda:95' is not there"));
  unsetenv("LOCAL_RANK");
}

}  // namespace
}  // namespace examples::imagenet
