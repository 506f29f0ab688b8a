// The built-in evaluator as a judge sees what 16-bit storage does, in bodies too.
#include "convert/judge/verify.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <tuple>

#include "cases.h"
#include "evaluator.h"
#include "mezzo/convert.h"
#include "networks.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class EvaluatorJudges : public JudgedConversions {};

TEST_F(EvaluatorJudges, OverflowIsSeenAndNothingIsWritten) {
  save(in(), overflowing_model());
  options_.verify = "run";
  EXPECT_THROW(convert_model(in(), out(), options_), Error);
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(EvaluatorJudges, CalibrationKeepsTheOverflowingPartFloat) {
  save(in(), overflowing_model());
  save(folder_ / "x.pb", floats("x", {2, 2}, {1, -2, 3, 4}));
  options_.calibration = {folder_ / "x.pb"};
  options_.verify = "compare";
  const Report report = convert_model(in(), out(), options_).report;
  EXPECT_EQ(report.heavy_low_nodes, 2);
  EXPECT_LT(report.errors.at(0).relative_to_range, 1e-2);
  EXPECT_THAT(report.verified, HasSubstr("the built-in evaluator"));
}

TEST_F(EvaluatorJudges, CalibrationAloneJudgesNoResult) {
  save(in(), overflowing_model());
  save(folder_ / "x.pb", floats("x", {2, 2}, {1, -2, 3, 4}));
  options_.calibration = {folder_ / "x.pb"};
  for (const char* verify : {"none", "load"}) {
    options_.verify = verify;
    const Report report = convert_model(in(), out(), options_).report;
    EXPECT_THAT(report.errors, testing::IsEmpty()) << verify;
    EXPECT_THAT(report.verified, testing::Not(HasSubstr("runs in"))) << verify;
  }
}

TEST_F(EvaluatorJudges, WhatWasJudgedWithOtherOptionsDoesNotCount) {
  save(in(), overflowing_model());
  options_.tolerance = 0.01;
  const auto interrupted = [&](int after) {
    int judged = 0;
    options_.progress = [&, after](std::string_view what, double) {
      if (what == "searching" && ++judged == after) throw std::runtime_error("interrupted");
    };
    EXPECT_THROW(convert_model(in(), out(), options_), std::runtime_error);
    options_.progress = {};
  };
  const int whole = static_cast<int>(convert_model(in(), out(), options_).report.search_attempts);
  fs::remove(out());
  interrupted(2);
  options_.io = "low";
  EXPECT_GE(convert_model(in(), out(), options_).report.search_attempts, whole);
}

TEST_F(EvaluatorJudges, APlanOfAnotherCheckpointIsJudgedAndNothingIsSearched) {
  save(in(), overflowing_model());
  save(folder_ / "x.pb", floats("x", {2, 2}, {1, -2.3F, 3.7F, 4.1F}));
  options_.calibration = {folder_ / "x.pb"};
  const Plan fits = plan_model(in(), options_);
  options_.calibration.clear();
  options_.verify = "none";
  const Plan all_low = plan_model(in(), options_);
  Judges judges{.verify = "compare",
                .calibration = {folder_ / "x.pb"},
                .evaluator = MEZZO_EVALUATOR,
                .onnxruntime = folder_};
  for (const auto& tolerance : {std::optional<double>(), std::optional<double>(0.01)}) {
    judges.tolerance = tolerance;
    try {
      apply_plan(in(), out(), all_low, judges);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("make a plan for this model, with Options::tolerance"));
    }
    EXPECT_FALSE(fs::exists(out()));
    const Report report = apply_plan(in(), out(), fits, judges).report;
    EXPECT_EQ(report.search_attempts, 0);
    EXPECT_LT(report.errors.at(0).relative_to_range, 1e-2);
    EXPECT_THAT(report.verified, HasSubstr("agrees within"));
    EXPECT_FALSE(report.local_errors.empty());
    fs::remove(out());
  }
  judges.tolerance = 1e-9;
  try {
    apply_plan(in(), out(), fits, judges);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("of its range, more than 1e-09; make a plan"));
  }
  judges.verify = "perhaps";
  EXPECT_THROW(apply_plan(in(), out(), fits, judges), ConfigError);
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(EvaluatorJudges, APlanIsSearchedForInAFolderOfItsOwn) {
  save(in(), overflowing_model());
  options_.tolerance = 0.01;
  const fs::path shared = fs::temp_directory_path() / "mezzo-plan.search";
  fs::remove(shared);
  options_.progress = [&](std::string_view, double) { EXPECT_FALSE(fs::exists(shared)); };
  EXPECT_FALSE(plan_model(in(), options_).decisions.empty());
}

TEST_F(EvaluatorJudges, TheSearchFindsWhatMustStayFloat) {
  save(in(), overflowing_model());
  options_.tolerance = 0.01;
  const Report report = convert_model(in(), out(), options_).report;
  EXPECT_GT(report.kept_by_search, 0);
  EXPECT_LE(report.search_attempts, 12);
  EXPECT_LE(report.errors.at(0).relative_to_range, 0.01);
}

// The rest of large numbers when large numbers are taken away; the weights are exact.
Message small_remainder() {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2});
  g.weight("w", {1, 0, 0, 1}, {2, 2}).weight("thousand", {1000, 1000}, {2});
  g.node("MatMul", {"x", "w"}, {"m"}).node("Sub", {"m", "thousand"}, {"d"});
  g.node("MatMul", {"d", "w"}, {"y"});
  return model(g.output("y", Element::kFloat, {1, 2}).take());
}

TEST_F(EvaluatorJudges, AComparisonOnSamplesSearchesForWhatItAccepts) {
  save(in(), small_remainder());
  add_sample(floats("x", {1, 2}, {1000.3F, 1000.1F}));
  options_.verify = "compare";
  const Report report = convert_model(in(), out(), options_).report;
  EXPECT_LE(report.errors.at(0).relative_to_range, 0.02);
  EXPECT_GT(report.kept_by_search, 0);
  EXPECT_EQ(report.heavy_low_nodes, 1) << "the product behind the difference";
  EXPECT_THAT(report.verified, HasSubstr("agrees within 0.02"));
}

TEST_F(EvaluatorJudges, AComparisonThatHoldsSearchesNothing) {
  save(in(), small_remainder());
  add_sample(floats("x", {1, 2}, {1500, 800}));
  options_.verify = "compare";
  const Report report = convert_model(in(), out(), options_).report;
  EXPECT_EQ(report.search_attempts, 0);
  EXPECT_EQ(report.heavy_low_nodes, 2);
}

// Sums of the columns of weights, whatever the inputs are, where rounding moves only the first
// weight; and another product.
Message sums_of_weights(float first, float second) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2});
  g.weight("w", {first, 0.25F, second, -0.75F}, {2, 2}).node("Div", {"x", "x"}, {"ones"});
  g.node("MatMul", {"ones", "w"}, {"y"}).weight("v", {1, 0.5F, -0.5F, 1});
  g.node("MatMul", {"x", "v"}, {"z"}).output("y", Element::kFloat, {1, 2});
  return model(g.output("z", Element::kFloat, {1, 2}).take());
}

TEST_F(EvaluatorJudges, WeightsThatCannotBeRoundedExcuseNoError) {
  save(in(), sums_of_weights(1000.2F, -1000));
  const Judges judges{.verify = "compare", .evaluator = MEZZO_EVALUATOR, .onnxruntime = folder_};
  options_.verify = "none";
  const Plan plan = plan_model(in(), options_);
  options_.verify = "compare";
  for (const bool is_planned : {false, true}) {
    try {
      is_planned ? apply_plan(in(), out(), plan, judges) : convert_model(in(), out(), options_);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("of its range, more than 0.02"));
      EXPECT_THAT(error.what(), HasSubstr("rounding the weights alone costs 0.4"));
      EXPECT_THAT(error.what(),
                  HasSubstr(is_planned ? "make a plan for this model, with Options::tolerance"
                                       : "give Options::tolerance to search"));
    }
    EXPECT_FALSE(fs::exists(out()));
  }
}

TEST_F(EvaluatorJudges, WeightsThatCannotBeRoundedStayFloatWhereSamplesSaySo) {
  save(in(), sums_of_weights(1000.2F, -1000));
  add_sample(floats("x", {1, 2}, {0.3F, -0.7F}));
  options_.verify = "compare";
  for (const char* dtype : {"float16", "bfloat16"}) {
    options_.target_dtype = dtype;
    const Report report = convert_model(in(), out(), options_).report;
    EXPECT_EQ(report.heavy_low_nodes, 1) << dtype;
    EXPECT_LT(report.errors.at(0).relative_to_range, 0.001) << dtype;
    EXPECT_THAT(report.warnings, testing::Contains(testing::AllOf(
                                     HasSubstr("nodes that the search keeps float32: 1; "),
                                     HasSubstr("rounding the weights alone costs 0.4"))))
        << dtype;
    fs::remove(out());
  }
}

TEST_F(EvaluatorJudges, WeightsThatCostLittleExcuseFourTimesThat) {
  save(in(), sums_of_weights(30.007F, -29.5F));
  options_.verify = "compare";
  const Report report = convert_model(in(), out(), options_).report;
  const double floor = report.weight_floor.at(0).relative_to_range;
  EXPECT_GT(floor, 0.005);
  EXPECT_LT(floor, 0.05);
  EXPECT_THAT(report.verified, HasSubstr("agrees within " + std::to_string(4 * floor)));
}

// A branch that fades, `gain` times larger behind its two products than it comes out of them.
Message fading_branch(float gain) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2});
  g.weight("w", {1, 2, 3, 4}, {2, 2}).weight("tiny", {1e-4F, -2e-4F, 3e-4F, 1e-4F}, {2, 2});
  g.weight("gain", {gain}, {});
  g.node("MatMul", {"x", "w"}, {"strong"});
  g.node("MatMul", {"x", "tiny"}, {"weak"});
  g.node("MatMul", {"weak", "tiny"}, {"weaker"});
  g.node("MatMul", {"weaker", "tiny"}, {"faint"});
  g.node("Mul", {"faint", "gain"}, {"again"}).node("Add", {"strong", "again"}, {"y"});
  return model(g.output("y", Element::kFloat, {1, 2}).take());
}

TEST_F(EvaluatorJudges, SmallValuesThatAreSeenNowhereGoLow) {
  save(in(), fading_branch(1));
  add_sample(floats("x", {1, 2}, {0.3F, -0.7F}));
  for (const char* verify : {"load", "compare"}) {
    options_.verify = verify;
    const Report report = convert_model(in(), out(), options_).report;
    EXPECT_EQ(report.heavy_low_nodes, 4) << verify;
    EXPECT_THAT(report.warnings, testing::Contains(HasSubstr("go low all the same")));
  }
}

TEST_F(EvaluatorJudges, SmallValuesThatGrowAgainStayFloat) {
  save(in(), fading_branch(1e11F));
  add_sample(floats("x", {1, 2}, {0.3F, -0.7F}));
  options_.verify = "compare";
  const Report report = convert_model(in(), out(), options_).report;
  EXPECT_LT(report.heavy_low_nodes, 4);
  EXPECT_LT(report.errors.at(0).relative_to_range, 0.02);
  EXPECT_THAT(report.warnings, testing::Not(testing::Contains(HasSubstr("all the same"))));
  EXPECT_THAT(report.warnings, testing::Contains(testing::AllOf(
                                   HasSubstr(std::to_string(4 - report.heavy_low_nodes) +
                                             " products stay float32 for values below"),
                                   HasSubstr("calibrate again once they are trained"))));
}

// Zero would be within every tolerance that is told as a share of one millionth.
TEST_F(EvaluatorJudges, OutputsThatAreSmallThemselvesDoNotVanish) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 2}).weight("tiny", {1e-4F, -2e-4F, 3e-4F, 1e-4F}, {2, 2});
  g.node("MatMul", {"x", "tiny"}, {"a"}).node("MatMul", {"a", "tiny"}, {"b"});
  g.node("MatMul", {"b", "tiny"}, {"y"});
  save(in(), model(g.output("y", Element::kFloat, {1, 2}).take()));
  add_sample(floats("x", {1, 2}, {30, -70}));
  options_.verify = "compare";
  const Report report = convert_model(in(), out(), options_).report;
  EXPECT_GT(report.heavy_low_nodes, 0) << "the first product is large enough";
  EXPECT_LT(report.heavy_low_nodes, 3);
  EXPECT_GT(report.errors.at(0).cosine, 0.999);
}

TEST_F(EvaluatorJudges, AnInterruptedSearchGoesOnWhereItStopped) {
  save(in(), overflowing_model());
  options_.tolerance = 0.01;
  const Report whole = convert_model(in(), out(), options_).report;
  fs::remove(out());
  int judged = 0;
  options_.progress = [&](std::string_view what, double) {
    if (what == "searching" && ++judged == 2) throw std::runtime_error("interrupted");
  };
  EXPECT_THROW(convert_model(in(), out(), options_), std::runtime_error);
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_TRUE(fs::exists(out().string() + ".search"));
  options_.progress = {};
  const Report rest = convert_model(in(), out(), options_).report;
  EXPECT_EQ(rest.search_attempts, whole.search_attempts - 1);
  EXPECT_EQ(rest.kept_by_search, whole.kept_by_search);
  EXPECT_FALSE(fs::exists(out().string() + ".search"));
}

TEST_F(EvaluatorJudges, ACommandAndAToleranceMustBothBeContent) {
  save(in(), overflowing_model());
  options_.tolerance = 0.01;
  const Report alone = convert_model(in(), out(), options_).report;
  fs::remove(out());
  // As many Casts as no set of that size needs: the command wants more than the tolerance does.
  const std::string log = (folder_ / "log").string();
  options_.check = "echo x >> " + log + "; test $(grep -o Cast {} | wc -l) -gt 100";
  EXPECT_THROW(convert_model(in(), out(), options_), Error);
  EXPECT_FALSE(fs::exists(out()));
  options_.check = "echo y >> " + log + "; test -s {}";
  const Report both = convert_model(in(), out(), options_).report;
  EXPECT_EQ(both.kept_by_search, alone.kept_by_search);
  EXPECT_LE(both.errors.at(0).relative_to_range, 0.01);
  EXPECT_THAT(both.verified, HasSubstr("accepted by the command"));
  // Only about what is within the tolerance.
  EXPECT_LT(std::ranges::count(contents(log), 'y'), both.search_attempts);
}

TEST_F(EvaluatorJudges, AToleranceThatCannotBeKeptIsSaidOfPlansToo) {
  save(in(), overflowing_model());
  save(folder_ / "x.pb", floats("x", {2, 2}, {0.1F, -2.3F, 3.7F, 4.9F}));
  options_.calibration = {folder_ / "x.pb"};
  options_.io = "low";  // which no search can mend
  options_.tolerance = 1e-9;
  for (const bool plans : {false, true, false}) {
    try {
      if (plans) {
        options_.check = "test -s {}";  // is not asked
        plan_model(in(), options_);
      } else {
        convert_model(in(), out(), options_);
      }
      ADD_FAILURE() << "found";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("the search found no nodes that, kept float32"));
    }
  }
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_FALSE(fs::exists(out().string() + ".search"));
}

TEST_F(EvaluatorJudges, ErrorsAreAlsoGivenAsQuantiles) {
  save(in(), overflowing_model());
  options_.verify = "compare";
  for (int i = 1; i <= 3; ++i) {
    const fs::path file = folder_ / ("x" + std::to_string(i) + ".pb");
    save(file, floats("x", {2, 2}, {0.1F * static_cast<float>(i), -2, 3, 4}));
    options_.calibration.push_back(file);
    const Report report = convert_model(in(), out(), options_).report;
    const std::size_t outputs = i > 1 ? 1 : 0;
    ASSERT_EQ(report.median_errors.size(), outputs);
    ASSERT_EQ(report.q90_errors.size(), outputs);
    if (i == 1) continue;
    EXPECT_LE(report.median_errors[0].max_absolute, report.q90_errors[0].max_absolute);
    EXPECT_LE(report.q90_errors[0].max_absolute, report.errors[0].max_absolute);
    EXPECT_THAT(report.to_json(), HasSubstr("\"kl_divergence\""));
  }
}

// The same chain, in a branch: ranges inside bodies count.
TEST_F(EvaluatorJudges, RangesInsideBodiesAreMeasured) {
  GraphBuilder then("then");
  then.node("MatMul", {"x", "w"}, {"a"})
      .node("Mul", {"a", "k"}, {"b"})
      .node("Mul", {"b", "k"}, {"c"})
      .node("Div", {"c", "k"}, {"d"})
      .node("Div", {"d", "k"}, {"t"})
      .output("t");
  GraphBuilder other("else");
  other.node("MatMul", {"x", "w"}, {"e"}).output("e");
  GraphBuilder g;
  g.input("x").input("flag", Element::kBool, {}).weight("w", {1, 0, 0, 1});
  g.weight("k", {400, 400, 400, 400});
  g.node("If", {"flag"}, {"y"}, body_attribute("then_branch", then.take()),
         body_attribute("else_branch", other.take()));
  g.output("y");
  save(in(), model(g.take()));
  save(folder_ / "x.pb", floats("x", {2, 2}, {1, -2, 3, 4}));
  save(folder_ / "flag.pb", tensor("flag", Element::kBool, {}, std::vector<char>{1}));
  options_.calibration = {folder_ / "x.pb", folder_ / "flag.pb"};
  options_.verify = "compare";
  const Result result = convert_model(in(), out(), options_);
  EXPECT_EQ(result.report.heavy_low_nodes, 2);
  EXPECT_LT(result.report.errors.at(0).relative_to_range, 1e-2);
  const auto by_range = std::ranges::count_if(
      result.plan.decisions, [](const Decision& each) { return each.rule == "range"; });
  EXPECT_GE(by_range, 2);
}

// With calibration data every kind of network is accurate, and nine heavy operators of ten are low.
TEST_F(EvaluatorJudges, NetworksAreAccurateAndMostlyLow) {
  const std::vector<std::int64_t> tokens{5, 17, 99, 3, 42, 8, 61, 2, 0, 0, 0, 0};
  save(folder_ / "tokens.pb", tensor("tokens", Element::kInt64, {1, 12}, tokens));
  save(folder_ / "mask.pb", floats("mask", {1, 1, 1, 12}, {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}));
  save(folder_ / "fast.pb", tensor("fast", Element::kBool, {}, std::vector<char>{1}));
  const fs::path image = folder_ / "data.pb";
  const fs::path wave = folder_ / "audio.pb";
  const fs::path loud = folder_ / "samples.pb";
  save(image, uniform_floats("data", {1, 3, 64, 64}, 2));
  save(wave, uniform_floats("audio", {1, 1, 1, 256}, 1));
  save(loud, uniform_floats("samples", {1, 1, 1, 2048}, 32767));
  const std::vector<fs::path> text{folder_ / "tokens.pb", folder_ / "mask.pb"};
  const std::vector<std::tuple<const char*, Message, std::vector<fs::path>>> networks = [&] {
    std::vector<std::tuple<const char*, Message, std::vector<fs::path>>> all;
    all.emplace_back("resnet18", resnet18(), std::vector{image});
    all.emplace_back("encoder", encoder(), text);
    all.emplace_back("encoder, -1e9", encoder(-1e9F), text);
    all.emplace_back("speech", speech(), std::vector{wave, folder_ / "fast.pb"});
    all.emplace_back("audio", audio(), std::vector{loud});
    return all;
  }();
  options_.verify = "compare";
  for (const char* dtype : {"float16", "bfloat16"}) {
    for (const auto& [name, network, samples] : networks) {
      save(in(), network);
      options_.target_dtype = dtype;
      options_.calibration = samples;
      options_.opset = std::string_view(dtype) == "bfloat16" ? "22" : "keep";
      try {
        const Report report = convert_model(in(), out(), options_).report;
        std::printf("%s, %s: %lld of %lld heavy operators low, error %.4f of the range\n", name,
                    dtype, static_cast<long long>(report.heavy_low_nodes),
                    static_cast<long long>(report.heavy_nodes),
                    report.errors.at(0).relative_to_range);
        EXPECT_GE(report.heavy_low_nodes * 10, report.heavy_nodes * 9) << name;
      } catch (const Error& error) {
        ADD_FAILURE() << name << ' ' << dtype << ": " << error.what();
      }
    }
  }
}

TEST_F(EvaluatorJudges, WhatIsMissingIsSaid) {
  save(in(), overflowing_model());
  options_.evaluator = folder_;
  options_.verify = "compare";
  try {
    convert_model(in(), out(), options_);
    ADD_FAILURE() << "judged by nothing";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("libmezzo_convert_torch.so was not found"));
    EXPECT_THAT(error.what(), HasSubstr("libonnxruntime.so was not found"));
  }
}

}  // namespace
}  // namespace mezzo::convert
