#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "report/sample.h"

namespace mezzo::report {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string shown(ConsoleOptions options) {
  std::ostringstream out;
  {
    const auto sink = console(out, options);
    for (const Event& event : sample::events()) sink->write(event);
  }
  return out.str();
}

TEST(ConsoleSink, WritesPlainLinesIntoAFile) {
  EXPECT_EQ(
      shown({}),
      "O0  epoch 1/1  step 10/20  loss 1.500  acc 50.0 %  2000 images/s  scale 1  skipped 0\n"
      "O0  epoch 1/1  loss 1.250  train 75.00 %  test 81.25 %  2.5 s\n"
      "O0  done: test 81.25 %, 50.0 ms a step, 0 skipped, scale 1\n"
      "O1  epoch 1/1  step 10/20  loss 1.250  acc 50.0 %  3000 images/s  scale 32768  skipped 1\n"
      "O1  an overflow; scale is now 32768\n"
      "O1  epoch 1/1  loss 1.125  train 70.00 %  2.5 s\n"
      "O1  done: test 80.00 %, 25.0 ms a step, 1 skipped, scale 32768\n");
}

TEST(ConsoleSink, LeavesOutAnAccuracyThatIsNotKnown) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  std::ostringstream out;
  const auto sink = console(out, {});
  sink->write(RunStarted{.run = "O0", .epochs = 1, .steps_per_epoch = 20, .items = "images"});
  sink->write(
      StepTaken{.epoch = 1, .step = 10, .loss = 1.5, .accuracy = kUnknown, .items_per_second = 9});
  sink->write(EpochEnded{.epoch = 1, .loss = 1.25, .accuracy = kUnknown, .seconds = 2.5});
  sink->write(RunEnded{.test_accuracy = kUnknown, .seconds_per_step = 0.05});
  EXPECT_EQ(out.str(),
            "O0  epoch 1/1  step 10/20  loss 1.500  9 images/s  scale 1  skipped 0\n"
            "O0  epoch 1/1  loss 1.250  2.5 s\n"
            "O0  done: 50.0 ms a step, 0 skipped, scale 1\n");
}

TEST(ConsoleSink, DrawsABarOnATerminal) {
  const std::string text = shown({.live = true, .columns = 160});
  EXPECT_THAT(text, HasSubstr("\rO0  epoch 1/1  ━━━━━━━━━━━━────────────  loss 1.500"));
  EXPECT_THAT(text, HasSubstr("left\x1b[K"));
}

TEST(ConsoleSink, NeverDrawsALineWiderThanTheTerminal) {
  for (const int columns : {1, 20, 79, 80, 100, 120}) {
    const std::string text = shown({.live = true, .columns = columns});
    for (auto at = text.find("\rO0"); at != std::string::npos; at = text.find("\rO0", at + 1)) {
      const std::string drawn = text.substr(at + 1, text.find("\x1b[K", at) - at - 1);
      const auto width = std::ranges::count_if(drawn, [](char c) { return (c & 0xc0) != 0x80; });
      EXPECT_LT(width, std::max(columns, 2)) << drawn;
    }
  }
}

TEST(ConsoleSink, EndsAnOpenLineWhenTheProgramStopsEarly) {
  std::ostringstream out;
  {
    const auto sink = console(out, {.live = true, .columns = 120});
    sink->write(RunStarted{.run = "O0", .epochs = 1, .steps_per_epoch = 20});
    sink->write(StepTaken{.epoch = 1, .step = 10});
    EXPECT_THAT(out.str(), Not(HasSubstr("\n")));
  }
  EXPECT_EQ(out.str().back(), '\n');
}

}  // namespace
}  // namespace mezzo::report
