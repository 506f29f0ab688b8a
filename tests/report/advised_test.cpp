// Advice of a dry run in a log: written, read back, replayed, and shown on a terminal.
#include <gmock/gmock.h>

#include "report/sample.h"

namespace mezzo::report {
namespace {

std::vector<Event> advised_events() {
  return {RunStarted{.run = "O0", .epochs = 1, .steps_per_epoch = 1},
          PrecisionAdvised{.steps = 3,
                           .text = "Dry run of 3 steps\nfloat16: keep in float\n",
                           .policies = {{"float16", "dtype = \"float16\"\n"}}}};
}

TEST(AdvisedEvents, AreReadBackFromJsonLinesAndReplayed) {
  const auto file = sample::folder() / "advised.jsonl";
  Report all;
  {
    const auto sink = json_lines(file);
    for (const Event& event : advised_events()) {
      sink->write(event);
      add(all, event);
    }
  }
  EXPECT_EQ(read(file), all);
  ASSERT_EQ(all.runs.at(0).advised.size(), 1U);
  EXPECT_EQ(all.runs[0].advised[0].policies.at("float16"), "dtype = \"float16\"\n");
  struct Adding final : Sink {
    void write(const Event& event) override { add(report, event); }
    Report report;
  } again;
  replay(all, again);
  EXPECT_EQ(again.report, all);
}

TEST(AdvisedEvents, AreLinesOnATerminal) {
  std::ostringstream out;
  const auto sink = console(out);
  for (const Event& event : advised_events()) sink->write(event);
  EXPECT_THAT(out.str(), testing::EndsWith("Dry run of 3 steps\nfloat16: keep in float\n"));
}

}  // namespace
}  // namespace mezzo::report
