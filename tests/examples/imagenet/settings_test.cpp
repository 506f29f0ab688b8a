#include "imagenet/train/settings.h"

#include <gmock/gmock.h>
#include <mezzo/error.h>

#include <cmath>
#include <sstream>

namespace examples::imagenet {
namespace {

using testing::HasSubstr;

Settings read(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words{"imagenet"};
  for (std::string word; in >> word;) words.push_back(word);
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return read_settings(static_cast<int>(pointers.size()), pointers.data()).value();
}

std::string failure(const std::string& line) {
  try {
    read(line);
  } catch (const mezzo::ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Settings, ReadTheDocumentedCommandsOfApex) {
  const std::string prefix = "-a resnet50 --workers 4 ", suffix = " ./";
  const auto command = [&](const std::string& flags) { return read(prefix + flags + suffix); };
  const Settings first = command("--b 128 --opt-level O0");
  EXPECT_EQ(first.arch, "resnet50");
  EXPECT_EQ(first.workers, 4);
  EXPECT_EQ(first.batch_size, 128);
  EXPECT_EQ(first.opt_level, "O0");
  EXPECT_EQ(first.data, "./");
  EXPECT_EQ(first.loss_scale, "None");
  EXPECT_EQ(command("--b 224 --opt-level O3").opt_level, "O3");
  EXPECT_EQ(command("--b 224 --opt-level O3 --keep-batchnorm-fp32 True").keep_batchnorm_fp32,
            "True");
  EXPECT_EQ(command("--b 224 --opt-level O1").batch_size, 224);
  EXPECT_EQ(command("--b 224 --opt-level O1 --loss-scale 128.0").loss_scale, "128.0");
  EXPECT_EQ(command("--b 224 --opt-level O2").opt_level, "O2");
  EXPECT_EQ(command("--b 224 --opt-level O2 --loss-scale 128.0").loss_scale, "128.0");
  const Settings older = command("--fp16 --b 224 --static-loss-scale 128.0");
  EXPECT_EQ(older.how, "masters");
  EXPECT_EQ(std::stod(older.loss_scale), 128);
  EXPECT_EQ(command("--fp16 --b 224 --how fp16_optimizer --dynamic-loss-scale").loss_scale,
            "dynamic");
}

TEST(Settings, HaveApexsDefaultsAndSpellings) {
  const Settings s = read("-a resnet34 -j 3 -b 64 -p 7 -e --wd 0.01 --sync_bn --opt_level O2 dir");
  EXPECT_EQ(s.workers, 3);
  EXPECT_EQ(s.batch_size, 64);
  EXPECT_EQ(s.print_freq, 7);
  EXPECT_TRUE(s.evaluate);
  EXPECT_TRUE(s.sync_bn);
  EXPECT_EQ(s.weight_decay, 0.01);
  const Settings plain = read("dir");
  EXPECT_EQ(plain.arch, "resnet18");
  EXPECT_EQ(plain.epochs, 90);
  EXPECT_EQ(plain.batch_size, 256);
  EXPECT_EQ(plain.rate.base, 0.1);
  EXPECT_EQ(plain.momentum, 0.9);
  EXPECT_EQ(plain.weight_decay, 1e-4);
  EXPECT_EQ(plain.print_freq, 10);
  EXPECT_EQ(plain.prof, -1);
  EXPECT_EQ(plain.resize, 256);
  EXPECT_EQ(read("--image-size 28 dir").resize, 32);
  EXPECT_EQ(read("--cuda dir").device, "cuda");
  EXPECT_EQ(read("--checkpoint None dir").checkpoint, "");
  EXPECT_FALSE(read("--on-bad-image error dir").skip_bad_images);
}

TEST(Settings, RefuseWhatCannotBeMeant) {
  EXPECT_THAT(failure(""), HasSubstr("which folder?"));
  EXPECT_THAT(failure("--synthetic dir"), HasSubstr("--synthetic needs no folder"));
  EXPECT_THAT(failure("dir --classes 5"), HasSubstr("--classes is for --synthetic"));
  EXPECT_THAT(failure("dir --on-bad-image ignore"), HasSubstr("expected skip or error"));
  EXPECT_THAT(failure("dir --b 0"), HasSubstr("--batch-size: 0 is not between 1"));
  EXPECT_THAT(failure("dir --resize 100"), HasSubstr("--resize: 100 is not between 224"));
  EXPECT_THAT(failure("dir --ema 1"), HasSubstr("--ema must be"));
  EXPECT_THAT(failure("dir --label-smoothing 1"), HasSubstr("--label-smoothing must be"));
  EXPECT_THAT(failure("dir --min-crop 0"), HasSubstr("--min-crop must be"));
  EXPECT_THAT(failure("dir --lr 0"), HasSubstr("--lr must be"));
  EXPECT_THAT(failure("dir --how masters --opt-level O2"), HasSubstr("are for --how amp"));
  EXPECT_THAT(failure("dir --how masters --sync-bn --reducer"), HasSubstr("is for --how amp"));
  EXPECT_THAT(failure("dir --how handle --ema 0.9"), HasSubstr("--ema is for --how amp"));
}

TEST(Rate, RisesOverFiveEpochsAndFallsByTenEveryThirty) {
  const Rate rate;
  // From Apex's example: factor epoch // 30, one more from 80 on; warm-up by step.
  for (const std::int64_t epoch : {0, 3, 4, 5, 29, 30, 59, 60, 79, 80, 89, 90}) {
    for (const std::int64_t step : {0, 50, 99}) {
      const double factor = static_cast<double>(epoch / 30 + (epoch >= 80 ? 1 : 0));
      double expected = 0.1 * 512 / 256 * std::pow(0.1, factor);
      if (epoch < 5) expected *= (1. + static_cast<double>(step + epoch * 100)) / (5. * 100);
      EXPECT_NEAR(rate.at(epoch, step, 100, 512), expected, 1e-12) << epoch << ' ' << step;
    }
  }
}

TEST(Rate, TakesOtherEpochs) {
  const Rate rate{.base = 1, .warmup_epochs = 0, .decay_epochs = 2, .extra_decay_epoch = 0};
  EXPECT_NEAR(rate.at(0, 0, 10, 256), 1, 1e-12);
  EXPECT_NEAR(rate.at(2, 0, 10, 256), 0.1, 1e-12);
  EXPECT_NEAR(rate.at(90, 0, 10, 256), 1e-45, 1e-50);
}

}  // namespace
}  // namespace examples::imagenet
