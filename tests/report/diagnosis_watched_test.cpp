// Findings from watched steps and explained skips.
#include <gmock/gmock.h>

#include "mezzo/insight_diagnosis.h"

namespace mezzo::insight {
namespace {

using report::Magnitudes;
using report::Report;
using report::Run;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Magnitudes gradient(double zeros, double subnormals, const std::string& type = "float16") {
  Magnitudes m{.type = type, .count = 100, .zeros = zeros, .subnormals = subnormals};
  if (zeros < 1) m.largest = 0.25;
  return m;
}

/// A run that was watched four times, with these gradients of two parameters.
Run watched_run(const std::string& name, const Magnitudes& first, const Magnitudes& second) {
  report::Run run{.name = name};
  for (std::int64_t step = 100; step <= 400; step += 100) {
    run.watched.push_back(
        {.step = step,
         .scale = 1024,
         .rows = {{.module = "a", .gradients = gradient(1, 0)},  // modules do not count
                  {.module = "a", .parameter = "a.weight", .gradients = first},
                  {.module = "b", .parameter = "b.weight", .gradients = second}}});
  }
  return run;
}

Report report_with(std::vector<Run> runs) {
  Report all;
  all.runs = std::move(runs);
  return all;
}

std::vector<std::string> kinds_of(const std::vector<Finding>& findings) {
  std::vector<std::string> kinds;
  for (const Finding& finding : findings) kinds.push_back(finding.kind);
  return kinds;
}

TEST(DiagnoseWatched, FindsNothingWhereGradientsFitTheirType) {
  // Inactive units have exact zeros.
  const report::Run run = watched_run("O1", gradient(0.7, 0.01), gradient(0, 0.3));
  EXPECT_THAT(diagnose(report_with({run})), IsEmpty());
}

TEST(DiagnoseWatched, FindsGradientsBelowTheirType) {
  const auto findings =
      diagnose(report_with({watched_run("O1", gradient(0.5, 0.4), gradient(0, 0.1))}));
  ASSERT_THAT(kinds_of(findings), ElementsAre("vanishing"));
  EXPECT_EQ(findings[0].severity, "warning");
  EXPECT_EQ(findings[0].where, "O1");
  EXPECT_THAT(findings[0].evidence, HasSubstr("steps 100 to 400, at a loss scale of 1024"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("'a.weight' that are not zero up to 80.00 %"));
  EXPECT_THAT(findings[0].evidence, Not(HasSubstr("b.weight")));
  EXPECT_THAT(findings[0].advice, HasSubstr("Raise the scale"));
}

TEST(DiagnoseWatched, AWideTypeGetsOtherAdvice) {
  const auto findings = diagnose(
      report_with({watched_run("O4", gradient(0, 0.9, "bfloat16"), gradient(0, 0, "bfloat16"))}));
  ASSERT_THAT(kinds_of(findings), ElementsAre("vanishing"));
  EXPECT_THAT(findings[0].advice, HasSubstr("no scale helps"));
}

TEST(DiagnoseWatched, FindsParametersThatNoGradientReaches) {
  const auto findings = diagnose(report_with({watched_run("O1", gradient(0, 0), gradient(1, 0))}));
  ASSERT_THAT(kinds_of(findings), ElementsAre("dead"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("no gradient but zero reached 'b.weight'"));
}

TEST(DiagnoseWatched, TellsDeadFromVanishedByTheFloatRun) {
  const report::Run in_float =
      watched_run("O0", gradient(0, 0, "float32"), gradient(1, 0, "float32"));
  const report::Run low = watched_run("O1", gradient(1, 0), gradient(1, 0));
  const auto findings = diagnose(report_with({in_float, low}));
  ASSERT_THAT(kinds_of(findings), ElementsAre("dead", "vanishing", "dead"));
  EXPECT_EQ(findings[0].where, "O0");
  EXPECT_THAT(findings[1].evidence,
              HasSubstr("all gradients of 'a.weight' are zero, and in float (O0) they reach 0.25"));
  EXPECT_THAT(findings[2].evidence, HasSubstr("'b.weight'"));
}

report::Run at_scale(report::Run run, double scale) {
  for (report::StepWatched& step : run.watched) step.scale = scale;
  return run;
}

TEST(DiagnoseWatched, WhereNoParameterHasAnyGradientAtASmallScaleTheyVanished) {
  for (const double scale : {0.5, 1.0, 128.0}) {
    const report::Run run = at_scale(watched_run("O1", gradient(1, 0), gradient(1, 0)), scale);
    const auto findings = diagnose(report_with({run}));
    ASSERT_THAT(kinds_of(findings), ElementsAre("vanishing")) << scale;
    EXPECT_THAT(findings[0].evidence, HasSubstr("all gradients of 'a.weight' are zero"));
    EXPECT_THAT(findings[0].evidence, HasSubstr("'b.weight'"));
    EXPECT_THAT(findings[0].advice, HasSubstr("Raise the scale"));
  }
}

TEST(DiagnoseWatched, ZerosBesideGradientsAtTheEndOfTheTypeVanished) {
  const auto findings =
      diagnose(report_with({at_scale(watched_run("O2", gradient(1, 0), gradient(0.2, 0.7)), 1)}));
  ASSERT_THAT(kinds_of(findings), ElementsAre("vanishing"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("all gradients of 'a.weight' are zero"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("'b.weight' that are not zero"));
}

TEST(DiagnoseWatched, ZerosAreNoLossWhereNoScaleCouldHelp) {
  const report::Run wide =
      at_scale(watched_run("O4", gradient(1, 0, "bfloat16"), gradient(1, 0, "bfloat16")), 1);
  EXPECT_THAT(kinds_of(diagnose(report_with({wide}))), ElementsAre("dead"));
  const report::Run scaled = at_scale(watched_run("O1", gradient(1, 0), gradient(1, 0)), 65536);
  EXPECT_THAT(kinds_of(diagnose(report_with({scaled}))), ElementsAre("dead"));
  // No backward pass came to them.
  const report::Run unused =
      at_scale(watched_run("O1", Magnitudes{.type = "float16"}, gradient(0, 0)), 1);
  EXPECT_THAT(kinds_of(diagnose(report_with({unused}))), ElementsAre("dead"));
}

TEST(DiagnoseWatched, ZerosCountWhereValuesGoOnBelowTheLeastNumber) {
  Magnitudes cut_off = gradient(0.6, 0.1);
  cut_off.first_exponent = -24;
  cut_off.exponents = {4, 6, 10, 20};
  const auto findings = diagnose(report_with({watched_run("O1", cut_off, gradient(0, 0))}));
  ASSERT_THAT(kinds_of(findings), ElementsAre("vanishing"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("70.00 %"));
}

TEST(DiagnoseWatched, ParametersThatVanishInSomeStepsWholeAreFound) {
  report::Run run = watched_run("O1", gradient(1, 0), gradient(0, 0));
  run.watched.front().rows[1].gradients = gradient(0.5, 0.5);
  const auto findings = diagnose(report_with({run}));
  ASSERT_THAT(kinds_of(findings), ElementsAre("vanishing"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("'a.weight'"));
}

TEST(DiagnoseWatched, AComparisonWithFloatTellsWhatIsLost) {
  report::Run run = watched_run("O1", gradient(1, 0), gradient(0, 0));
  ASSERT_THAT(kinds_of(diagnose(report_with({run}))), ElementsAre("dead"));
  run.compared.push_back({.level = "O1",
                          .operators = {{.name = "addmm",
                                         .module = "a",
                                         .backward = true,
                                         .type = "float16",
                                         .accumulated = 1}}});
  EXPECT_THAT(kinds_of(diagnose(report_with({run}))), ElementsAre("vanishing"));
}

TEST(DiagnoseWatched, LeavesSkippedAndSingleStepsOut) {
  report::Run run = watched_run("O1", gradient(1, 0), gradient(0, 0.9));
  for (std::size_t i = 1; i < run.watched.size(); ++i) run.watched[i].skipped = true;
  EXPECT_THAT(diagnose(report_with({run})), IsEmpty());
}

TEST(DiagnoseWatched, CountsSkipsByTheirExplanations) {
  report::Run run{.name = "O1"};
  for (std::int64_t i = 0; i < 100; ++i) {
    run.explained.push_back(
        {.step = i + 1,
         .summary = i % 33 == 7 ? "exp (head) overflowed" : "backward of softmax (attn) overflowed",
         .advice = {"keep it in float"}});
  }
  const auto findings = diagnose(report_with({run}));
  ASSERT_THAT(kinds_of(findings), ElementsAre("skips"));
  EXPECT_EQ(findings[0].severity, "info");
  EXPECT_EQ(findings[0].evidence,
            "97 of 100 explained skips: backward of softmax (attn) overflowed; 3 of 100 explained "
            "skips: exp (head) overflowed");
  EXPECT_EQ(findings[0].advice, "keep it in float");
}

}  // namespace
}  // namespace mezzo::insight
