#include "mezzo/report.h"

#include <gmock/gmock.h>

#include <cmath>

#include "cli/command.h"
#include "cli/program.h"

namespace mezzo::cli {
namespace {

using testing::HasSubstr;

/// A folder with the log of one run, a.jsonl.
class ReportCommand : public testing::Test {
 protected:
  ReportCommand() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const auto log = report::json_lines(folder_ / "a.jsonl");
    log->write(report::RunStarted{.run = "O0", .epochs = 1, .steps_per_epoch = 1});
    log->write(report::StepTaken{.epoch = 1, .step = 1, .loss = 0.5});
    log->write(report::EpochEnded{.epoch = 1, .loss = 0.5, .test_accuracy = 0.25});
    log->write(report::RunEnded{.test_accuracy = 0.25, .seconds_per_step = 0.01});
  }
  ~ReportCommand() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) /
                                  ("mezzo_cli_report_test_" + std::to_string(getpid()));
};

TEST_F(ReportCommand, PrintsATableOfALog) {
  const Outcome outcome = mezzo("report " + path("a.jsonl"));
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.out, report::to_table(report::read(path("a.jsonl"))));
  EXPECT_EQ(outcome.err, "");
}

TEST_F(ReportCommand, PutsSeveralFilesSideBySide) {
  report::save(report::read(path("a.jsonl")), path("b.json"));
  const Outcome outcome = mezzo("report --json " + path("a.jsonl") + " " + path("b.json"));
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  report::Report twice = report::read(path("a.jsonl"));
  twice.runs.push_back(twice.runs.front());
  EXPECT_EQ(outcome.out, report::to_json(twice));
}

TEST_F(ReportCommand, WritesPageAndEventFiles) {
  const Outcome outcome = mezzo("report " + path("a.jsonl") + " --html " + path("a.html") +
                                " --tensorboard " + path("events"));
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(content_of(path("a.html")), report::to_html(report::read(path("a.jsonl"))));
  EXPECT_TRUE(std::filesystem::exists(path("events/O0")));
}

TEST_F(ReportCommand, DiagnosesALog) {
  const auto log = report::json_lines(path("b.jsonl"));
  log->write(report::RunStarted{.run = "O1"});
  log->write(report::StepTaken{.epoch = 1, .step = 1, .loss = std::nan("")});
  const Outcome outcome = mezzo("report --diagnose " + path("b.jsonl"));
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("error: diverged in O1"));
  EXPECT_THAT(mezzo("report --diagnose --json " + path("b.jsonl")).out,
              HasSubstr("\"kind\": \"diverged\""));
  EXPECT_THAT(mezzo("report --diagnose " + path("a.jsonl")).out, HasSubstr("no finding"));
}

TEST_F(ReportCommand, SaysWhatIsWrong) {
  EXPECT_EQ(mezzo("report").code, kWrongUsage);
  const Outcome missing = mezzo("report " + path("none.jsonl"));
  EXPECT_EQ(missing.code, kFailed);
  EXPECT_THAT(missing.err, HasSubstr("none.jsonl"));
  EXPECT_EQ(mezzo("report " + path("a.jsonl") + " --html " + path("a.txt")).code, kWrongUsage);
  EXPECT_EQ(mezzo("report " + path("a.jsonl") + " --html " + path("none/a.html")).code, kFailed);
}

}  // namespace
}  // namespace mezzo::cli
