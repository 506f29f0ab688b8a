// Findings of a dry run and of a shadow run in a log: written, read back, replayed, and shown on a
// terminal and on the page.
#include <gmock/gmock.h>

#include <limits>

#include "report/sample.h"

namespace mezzo::report {
namespace {

std::vector<Event> advised_events() {
  return {RunStarted{.run = "O0", .epochs = 1, .steps_per_epoch = 1},
          PrecisionAdvised{
              .steps = 3,
              .text = "Dry run of 3 steps\nfloat16: keep in float\n",
              .policies = {{"float16", "dtype = \"float16\"\n"}},
              .operators = {{"float16", "mul", "float", "reaches 9e+04 <middle>"}},
              .costs = {{"float16", "low", 3, 0.002, 0.001, 4096, 2048}},
              .odd_sizes = {"addmm (head) takes 3 x 10, which matrix units like as 8 x 16"}}};
}

std::vector<Event> compared_events() {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  return {RunStarted{.run = "O1", .epochs = 1, .steps_per_epoch = 1},
          PrecisionCompared{
              .level = "O1",
              .scale = 1024,
              .text = "O1 against float\n  mul\n",
              .operators = {{"mul", "between <a> and b", false, "float16", kInfinite, 0.5},
                            {"addmm", "head", true, "float16", 0.25, kInfinite}},
              .casts = {{"addmm", "head", "head.weight", 2, "float16", 0.125, 2e-6},
                        {"addmm", "head", "", 1, "float16", 0.0625, 4e-6}}}};
}

struct Adding final : Sink {
  void write(const Event& event) override { add(report, event); }
  Report report;
};

Report report_of(const std::vector<Event>& events) {
  Adding all;
  for (const Event& event : events) all.write(event);
  return all.report;
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
  Adding again;
  replay(all, again);
  EXPECT_EQ(again.report, all);
}

TEST(AdvisedEvents, AreLinesOnATerminal) {
  std::ostringstream out;
  const auto sink = console(out);
  for (const Event& event : advised_events()) sink->write(event);
  EXPECT_THAT(out.str(), testing::EndsWith("Dry run of 3 steps\nfloat16: keep in float\n"));
}

TEST(ComparedEvents, AreReadBackFromJsonLinesAndReplayed) {
  const auto file = sample::folder() / "compared.jsonl";
  const Report all = report_of(compared_events());
  {
    const auto sink = json_lines(file);
    for (const Event& event : compared_events()) sink->write(event);
  }
  EXPECT_EQ(read(file), all) << "with its infinite errors";
  Adding again;
  replay(all, again);
  EXPECT_EQ(again.report, all);
}

TEST(ComparedEvents, AreLinesOnATerminal) {
  std::ostringstream out;
  const auto sink = console(out);
  for (const Event& event : compared_events()) sink->write(event);
  EXPECT_THAT(out.str(), testing::EndsWith("O1 against float\n  mul\n"));
}

TEST(PrecisionPage, ShowsWhatADryRunAdvises) {
  const std::string page = to_html(report_of(advised_events()));
  for (const char* part :
       {"<h2>Advice of a dry run: O0</h2>",
        "<td>mul</td><td>float16</td><td>float</td><td>reaches 9e+04 &lt;middle&gt;</td>",
        "<td>3</td><td>2.00 ms</td><td>1.00 ms</td><td>4.0 KiB</td><td>2.0 KiB</td>",
        "<li>addmm (head) takes 3 x 10", "<pre>dtype = "})
    EXPECT_THAT(page, testing::HasSubstr(part));
}

TEST(PrecisionPage, ShowsWhatAShadowRunFound) {
  const std::string page = to_html(report_of(compared_events()));
  for (const char* part :
       {"<h2>Precision lost: O1</h2>", "with a loss scale of 1024",
        "<td>mul</td><td>between &lt;a&gt; and b</td><td>forward</td><td>float16</td>"
        "<td>overflow</td><td>0.5</td>",
        "<td>addmm</td><td>head</td><td>backward</td><td>float16</td><td>0.25</td>"
        "<td>overflow</td>",
        "<td>head.weight</td><td>addmm (head)</td><td>float16</td><td>0.125</td><td>2 us</td>",
        "<td>input 1</td>"})
    EXPECT_THAT(page, testing::HasSubstr(part));
}

TEST(PrecisionPage, ShowsTheWorstOfManyAndSaysHowManyThereAre) {
  std::vector<Event> events = compared_events();
  auto& compared = std::get<PrecisionCompared>(events[1]);
  compared.operators.assign(50, compared.operators[1]);
  const std::string page = to_html(report_of(events));
  EXPECT_THAT(page, testing::HasSubstr("The first 40 of 50 operator calls; the log has all."));
}

TEST(PrecisionPage, HasNoSectionWhereNothingWasLookedAt) {
  const std::string page = to_html(sample::report());
  for (const char* title : {"Advice of a dry run", "Precision lost"})
    EXPECT_THAT(page, testing::Not(testing::HasSubstr(title)));
}

TEST(PrecisionEvents, WithAWrongFieldAreRefusedByItsName) {
  const auto file = sample::folder() / "wrong.jsonl";
  std::ofstream(file)
      << R"({"event":"run_started","run":"O1","epochs":1,"steps_per_epoch":1,"batch_size":1,"items":"x","machine":{"processor":"","instruction_sets":[],"cores":1,"threads":1,"devices":[],"versions":{},"compute":{}}}
{"event":"precision_compared","level":"O1","scale":1,"text":"","operators":7,"casts":[]}
)";
  try {
    read(file);
    FAIL() << "was read";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'operators' must be an array of objects"));
  }
}

}  // namespace
}  // namespace mezzo::report
