// Stops and faults: what a checkpoint must bring back to the bit, and what a folder can do wrong.
#include <gmock/gmock.h>
#include <mezzo/error.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "examples/imagenet/training.h"

namespace examples::imagenet {
namespace {

using testing::Contains;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string what_is_wrong(const Workshop& shop, const Words& words) {
  try {
    shop.train(words, "wrong");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Sends SIGTERM once a log has so many lines.
class Killer {
 public:
  Killer(std::filesystem::path log, int lines)
      : thread_([log = std::move(log), lines] {
          const auto count = [&] {
            const std::string text = bytes_of(log);
            return std::ranges::count(text, '\n');
          };
          while (count() < lines) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          std::raise(SIGTERM);
        }) {}
  ~Killer() { thread_.join(); }
  Killer(const Killer&) = delete;
  Killer& operator=(const Killer&) = delete;

 private:
  std::thread thread_;
};

class Resuming : public testing::TestWithParam<Words> {};
INSTANTIATE_TEST_SUITE_P(
    Training, Resuming,
    testing::Values(Words{"--opt-level", "O0"}, Words{"--opt-level", "O1"},
                    Words{"--opt-level", "O2", "--ema", "0.9"}, Words{"--opt-level", "O5"},
                    Words{"-a", "efficientnet_b0", "--epochs", "1"},  // with dropout
                    Words{"--how", "fp16_optimizer", "--dynamic-loss-scale"},
                    Words{"--how", "masters", "--loss-scale", "8"},
                    Words{"--how", "handle", "--loss-scale", "8"}));

TEST_P(Resuming, GoesOnInTheMiddleOfAnEpochToTheLastBit) {
  const Workshop shop;
  const std::uint64_t expected = shop.train(GetParam(), "whole").weights;
  Trained stopped;
  {
    const Killer killer(shop.file("stopped.jsonl"), 2);  // the run's first line, a step
    stopped = shop.train(GetParam(), "stopped");
  }
  EXPECT_EQ(stopped.code, 128 + SIGTERM);
  EXPECT_FALSE(stopped.run.ended);
  EXPECT_THAT(stopped.run.messages, Contains(HasSubstr("go on with --resume ")));
  ASSERT_NE(stopped.weights, expected);
  const Trained resumed = shop.train(
      GetParam() + Words{"-j", "3", "--resume", shop.file("stopped.safetensors")}, "resumed");
  EXPECT_EQ(resumed.code, 0);
  EXPECT_EQ(resumed.weights, expected);
}

TEST(Resuming, ReportsTheFiguresOfTheWholeEpoch) {
  const Workshop shop;
  const Trained whole = shop.train({}, "whole");
  shop.train({"--epochs", "1"}, "first");
  const Trained second = shop.train({"--resume", shop.file("first.safetensors")}, "second");
  ASSERT_EQ(second.run.epochs.size(), 1U);
  EXPECT_EQ(second.run.epochs[0].epoch, 2);
  EXPECT_EQ(second.run.epochs[0].loss, whole.run.epochs[1].loss);
  EXPECT_EQ(second.weights, whole.weights);
}

TEST(Resuming, RefusesTheRestOfAnEpochOfOtherImages) {
  const Workshop shop;
  {
    const Killer killer(shop.file("stopped.jsonl"), 2);
    shop.train({}, "stopped");
  }
  const Words resume{"--resume", shop.file("stopped.safetensors")};
  EXPECT_THAT(what_is_wrong(shop, resume + Words{"-b", "4"}), HasSubstr("batch size 8, got 4"));
  EXPECT_THAT(what_is_wrong(shop, resume + Words{"--seed", "5"}), HasSubstr("seed 1, got 5"));
  write_picture(shop.data() / "train" / "kind0" / "new.jpg", picture(30, 30));
  EXPECT_THAT(what_is_wrong(shop, resume), HasSubstr("with data "));
  EXPECT_THAT(what_is_wrong(shop, {"--resume", shop.file("none")}), HasSubstr("none"));
  EXPECT_THAT(what_is_wrong(shop, resume + Words{"-a", "resnet18"}), HasSubstr("has shape"));
}

TEST(Faults, OfTheFolderAreNamedBeforeAnythingIsTrained) {
  const Workshop shop;
  std::filesystem::create_directories(shop.data() / "train" / "nothing");
  EXPECT_THAT(what_is_wrong(shop, {}), HasSubstr("class 'nothing' is empty"));
  std::filesystem::remove(shop.data() / "train" / "nothing");
  std::filesystem::remove_all(shop.data() / "val" / "kind2");
  EXPECT_THAT(what_is_wrong(shop, {}), HasSubstr("'kind2' is in 'train' but not in 'val'"));
  std::filesystem::remove_all(shop.data() / "val");
  EXPECT_THAT(what_is_wrong(shop, {}), HasSubstr("val' is no folder"));
}

TEST(Faults, OfAFileAreNamedAndSkipped) {
  const Workshop shop;
  write_bytes(shop.data() / "train" / "kind1" / "3.jpg", "no image");
  write_bytes(shop.data() / "val" / "kind0" / "0.jpg", "");
  const Trained trained = shop.train({});
  EXPECT_EQ(trained.code, 0);
  EXPECT_THAT(trained.run.messages, Contains(HasSubstr("kind1/3.jpg': Not a JPEG file")).Times(1));
  EXPECT_THAT(trained.run.messages, Contains(HasSubstr("kind0/0.jpg': is empty")).Times(1));
}

TEST(Faults, OfAFileEndATrainingThatGoesOnOnceItIsMended) {
  const Workshop shop;
  const std::uint64_t expected = shop.train({}, "whole").weights;
  const auto file = shop.data() / "train" / "kind1" / "3.jpg";
  const std::string good = bytes_of(file);
  write_bytes(file, good.substr(0, good.size() / 2));
  const Words words{"--on-bad-image", "error", "--checkpoint-steps", "1"};
  EXPECT_THAT(what_is_wrong(shop, words + Words{"--seed", "1"}), HasSubstr("kind1/3.jpg': "));
  write_bytes(file, good);
  if (!std::filesystem::exists(shop.file("wrong.safetensors"))) return;  // it came first
  EXPECT_EQ(shop.train({"--resume", shop.file("wrong.safetensors")}).weights, expected);
}

/// While it lives, no file of this process grows beyond a size: as on a full disk.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) {
    before_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit small{bytes, limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, before_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  rlimit limit_{};
  void (*before_)(int);
};

TEST(Faults, OfTheDiskLeaveTheCheckpointBefore) {
  const Workshop shop;
  const std::uint64_t before = shop.train({"--epochs", "1"}, "wrong").weights;
  std::string why;
  {
    const SmallDisk disk(100'000);
    why = what_is_wrong(shop, {"--resume", shop.file("wrong.safetensors")});
  }
  EXPECT_THAT(why, HasSubstr("the last checkpoint could not be written"));
  EXPECT_EQ(weights_in(shop.file("wrong.safetensors")), before);
  const auto run = mezzo::report::read(shop.file("wrong.jsonl")).runs.at(0);
  EXPECT_EQ(run.epochs.size(), 1U);  // it trained on
  EXPECT_THAT(run.messages, Contains(HasSubstr("no checkpoint, the training goes on")));
}

TEST(Faults, OfThePlaceForCheckpointsAreNamedFirst) {
  const Workshop shop;
  EXPECT_THAT(what_is_wrong(shop, {"--checkpoint", shop.file("none/x.safetensors")}),
              HasSubstr("cannot write"));
}

}  // namespace
}  // namespace examples::imagenet
