// mezzo advise and mezzo lint.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/program.h"
#include "mezzo/report.h"

namespace mezzo::cli {
namespace {

using testing::HasSubstr;

class AdviseCommand : public testing::Test {
 protected:
  AdviseCommand() {
    const auto log = report::json_lines(file_);
    log->write(report::RunStarted{.run = "dry"});
    log->write(report::PrecisionAdvised{.steps = 1, .text = "an older one\n"});
    log->write(report::PrecisionAdvised{.steps = 2,
                                        .text = "Dry run of 2 steps\nfloat16: keep in float\n",
                                        .policies = {{"float16", "dtype = \"float16\"\n"},
                                                     {"bfloat16", "dtype = \"bfloat16\"\n"}}});
  }
  ~AdviseCommand() override { std::filesystem::remove(file_); }

  std::filesystem::path file_ = std::filesystem::path(testing::TempDir()) /
                                ("mezzo_cli_advise_test_" + std::to_string(getpid()) + ".jsonl");
};

TEST_F(AdviseCommand, PrintsTheLastAdviceOfALog) {
  const Outcome outcome = mezzo("advise " + file_.string());
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.out, "Dry run of 2 steps\nfloat16: keep in float\n");
}

TEST_F(AdviseCommand, PrintsThePolicyFileOfOneType) {
  const Outcome outcome = mezzo("advise --dtype bfloat16 " + file_.string());
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.out, "dtype = \"bfloat16\"\n");
  const Outcome wrong = mezzo("advise --dtype int8 " + file_.string());
  EXPECT_EQ(wrong.code, kWrongUsage);
  EXPECT_THAT(wrong.err, HasSubstr("bfloat16, float16"));
}

TEST_F(AdviseCommand, PrintsJson) {
  const auto json = nlohmann::json::parse(mezzo("advise --json " + file_.string()).out);
  ASSERT_EQ(json.size(), 1U);
  EXPECT_EQ(json[0]["run"], "dry");
  EXPECT_EQ(json[0]["steps"], 2);
  EXPECT_EQ(json[0]["policies"]["float16"], "dtype = \"float16\"\n");
}

TEST_F(AdviseCommand, ALogWithoutAdviceFailsAndSaysWhatWritesIt) {
  report::json_lines(file_)->write(report::RunStarted{.run = "O1"});
  const Outcome outcome = mezzo("advise " + file_.string());
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, HasSubstr("insight::dry_run"));
}

TEST(LintCommand, AFileThatIsNotThereFails) {
  const Outcome outcome = mezzo("lint nothing.pt");
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, HasSubstr("'nothing.pt' is not there"));
}

}  // namespace
}  // namespace mezzo::cli
