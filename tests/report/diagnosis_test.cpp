// Findings of a log about its run: each kind where it belongs, and none where all is well.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "mezzo/insight_diagnosis.h"

namespace mezzo::insight {
namespace {

using report::Report;
using report::Run;
using report::StepTaken;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Makes a run step by step; a skip halves the scale unless it is at `floor`.
class Story {
 public:
  explicit Story(std::string name, double scale = 65536, std::int64_t steps_per_epoch = 1000)
      : steps_per_epoch_(steps_per_epoch), scale_(scale) {
    run_.name = std::move(name);
  }
  Story& passes(int steps, double loss = 1) {
    for (int i = 0; i < steps; ++i) add(loss);
    return *this;
  }
  Story& skips(int steps, double floor = 1) {
    for (int i = 0; i < steps; ++i) {
      scale_ = std::max(floor, scale_ / 2);
      ++skipped_;
      add(1);
    }
    return *this;
  }
  Story& grows() {
    scale_ *= 2;
    return *this;
  }
  Story& says(const std::string& text) {
    run_.messages.push_back(text);
    return *this;
  }
  Story& ends(double seconds_per_step) {
    run_.ended = true;
    run_.figures.seconds_per_step = seconds_per_step;
    return *this;
  }
  /// As a program logs that writes an event every `n` steps.
  Run every(std::int64_t n) const {
    Run run = run_;
    std::erase_if(run.steps, [n](const StepTaken& step) { return step.step % n != 0; });
    return run;
  }
  operator Run() const { return run_; }  // NOLINT: a story is a run in all but name

 private:
  void add(double loss) {
    const std::int64_t step = ++step_;
    run_.steps.push_back({.epoch = 1 + (step - 1) / steps_per_epoch_,
                          .step = step,
                          .loss = loss,
                          .scale = scale_,
                          .skipped_steps = skipped_});
  }

  Run run_;
  std::int64_t steps_per_epoch_, step_ = 0, skipped_ = 0;
  double scale_;
};

Report report_of(std::vector<Run> runs) {
  return {.runs = std::move(runs)};
}

std::vector<std::string> kinds(const std::vector<Finding>& findings) {
  std::vector<std::string> all;
  for (const Finding& finding : findings) all.push_back(finding.kind);
  return all;
}

TEST(Diagnose, FindsNothingInARunThatIsWell) {
  Story well("O1");
  well.skips(2).passes(2000).grows().passes(1).skips(1).passes(2000);
  EXPECT_THAT(diagnose(report_of({well})), IsEmpty());
  EXPECT_THAT(diagnose(report_of({well.every(10)})), IsEmpty());
  EXPECT_THAT(diagnose({}), IsEmpty());
}

TEST(Diagnose, SeesAScaleStuckAtItsFloor) {
  const Story story = Story("O2", 8).passes(10).skips(3).skips(20);
  for (const report::Run& run : {report::Run(story), story.every(5)}) {
    const auto findings = diagnose(report_of({run}));
    ASSERT_THAT(kinds(findings), ElementsAre("stuck"));
    EXPECT_EQ(findings[0].severity, "error");
    EXPECT_EQ(findings[0].where, "O2");
    EXPECT_THAT(findings[0].evidence, HasSubstr("at its lowest, 1"));
  }
  EXPECT_THAT(diagnose(report_of({story}))[0].evidence,
              HasSubstr("20 steps were skipped in steps 14 to 33"));
}

TEST(Diagnose, SeesThrashing) {
  Story story("O1", 1024);
  story.passes(10);
  for (int i = 0; i < 8; ++i) story.grows().passes(9).skips(1);
  const auto findings = diagnose(report_of({story}));
  ASSERT_THAT(kinds(findings), ElementsAre("thrashing"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("turned 15 times in steps 20 to 90"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("8 steps were skipped"));
  EXPECT_THAT(findings[0].advice, HasSubstr("growth_interval"));
}

TEST(Diagnose, SeesAScaleThatBeganFarTooHigh) {
  const Story story = Story("O1", 16777216).skips(14).passes(300);
  const auto findings = diagnose(report_of({story}));
  ASSERT_THAT(kinds(findings), ElementsAre("high_scale"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("14 steps were skipped in steps 1 to 14"));
  EXPECT_THAT(findings[0].advice, HasSubstr("init_loss_scale = 1024"));
}

TEST(Diagnose, SaysWhetherFloatDivergedAsWell) {
  const double nan = std::nan("");
  const report::Run low = Story("O1").passes(5).passes(5, nan);
  const auto alone = diagnose(report_of({low}));
  ASSERT_THAT(kinds(alone), ElementsAre("diverged"));
  EXPECT_EQ(alone[0].evidence, "the loss is not finite from step 6 on");
  EXPECT_THAT(alone[0].advice, HasSubstr("O0"));

  const auto beside_sound = diagnose(report_of({Story("O0").passes(10), low}));
  ASSERT_THAT(kinds(beside_sound), ElementsAre("diverged"));
  EXPECT_THAT(beside_sound[0].advice, HasSubstr("Float trains"));

  const report::Run bad_float = Story("O0", 1).passes(7).passes(3, INFINITY);
  const auto both = diagnose(report_of({bad_float, low}));
  ASSERT_THAT(kinds(both), ElementsAre("diverged", "diverged"));
  EXPECT_EQ(both[0].evidence, "the loss is not finite from step 8 on");
  EXPECT_THAT(both[1].evidence, HasSubstr("'O0' diverged at step 8, too"));
  EXPECT_THAT(both[1].advice, HasSubstr("no precision"));
}

TEST(Diagnose, TakesALossThatRecoversForNoDivergence) {
  const report::Run run = Story("O1").passes(5).passes(1, INFINITY).passes(5);
  EXPECT_THAT(diagnose(report_of({run})), IsEmpty());
}

TEST(Diagnose, FindsTheBatchThatAlwaysFails) {
  Story story("O1", 65536, 10);
  for (int epoch = 0; epoch < 3; ++epoch) story.passes(7).skips(1).passes(2);
  const auto findings = diagnose(report_of({story}));
  ASSERT_THAT(kinds(findings), ElementsAre("batch"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("batch 7 (counted from 0)"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("3 epochs"));
}

TEST(Diagnose, FindsTheRankThatOverflowsAlone) {
  Story story("O1");
  story.passes(10);
  for (int i = 0; i < 3; ++i) {
    story.says(
        "mezzo: step skipped: loss 0 gave a gradient that is not finite on rank 1; loss "
        "scale 2 -> 1");
  }
  const auto findings = diagnose(report_of({story}));
  ASSERT_THAT(kinds(findings), ElementsAre("rank"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("3 of 3 skipped steps come from rank 1 alone"));
  story.says("mezzo: step skipped: a gradient is not finite on ranks 0, 1");
  EXPECT_THAT(diagnose(report_of({story})), IsEmpty());
}

TEST(Diagnose, SaysWhatIsSlowerThanFloatAndHowTheMachineComputes) {
  Report all = report_of({Story("O0").passes(2).ends(0.010), Story("O1").passes(2).ends(0.020),
                          Story("O4").passes(2).ends(0.0101)});
  all.machine.compute = {{"float16", "emulated"}};
  const auto findings = diagnose(all);
  ASSERT_THAT(kinds(findings), ElementsAre("slow"));
  EXPECT_EQ(findings[0].where, "O1");
  EXPECT_THAT(findings[0].evidence, HasSubstr("20.0 ms, in float (O0) 10.0 ms"));
  EXPECT_THAT(findings[0].evidence, HasSubstr("float16: emulated"));
}

TEST(Diagnose, PutsTheWorstFirstAndWritesTextAndJson) {
  const report::Run both = Story("O1", 16777216).skips(14).passes(50).passes(5, std::nan(""));
  const auto findings = diagnose(report_of({both}));
  ASSERT_THAT(kinds(findings), ElementsAre("diverged", "high_scale"));
  EXPECT_THAT(to_text(findings), HasSubstr("error: diverged in O1\n  the loss is not finite"));
  EXPECT_THAT(to_text({}), HasSubstr("no finding"));
  const auto json = nlohmann::json::parse(to_json(findings));
  EXPECT_EQ(json.size(), 2U);
  EXPECT_EQ(json[1]["kind"], "high_scale");
  EXPECT_EQ(json[1]["advice"], findings[1].advice);
}

}  // namespace
}  // namespace mezzo::insight
