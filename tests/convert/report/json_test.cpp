// Plans and reports as JSON: what is written, to the byte, and what is refused.
#include "convert/report/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "mezzo/convert.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Plan small_plan() {
  Plan plan;
  plan.target_dtype = "float16";
  plan.io = "keep";
  plan.io_of = {{"x", "float16"}, {"a \"b\" \\ \xC3\xA4", "float32"}};
  plan.opset = "keep";
  plan.structure = "0123456789abcdef";
  plan.float_weights = {"w"};
  Decision decision;
  decision.key = "main/n";
  decision.node = "n";
  decision.op = "Conv";
  decision.variable = "T";
  decision.low = true;
  decision.rule = "default";
  decision.why = "matrix unit";
  plan.decisions = {decision};
  return plan;
}

constexpr const char* kSmallPlan = R"({
  "format": "mezzo-plan-2",
  "target_dtype": "float16",
  "cast_optional_params": true,
  "weights_only": false,
  "io": "keep",
  "io_of": {
    "a \"b\" \\ ä": "float32",
    "x": "float16"
  },
  "opset": "keep",
  "structure": "0123456789abcdef",
  "float_weights": [
    "w"
  ],
  "decisions": [
    {
      "key": "main/n",
      "node": "n",
      "op": "Conv",
      "variable": "T",
      "low": true,
      "rule": "default",
      "why": "matrix unit"
    }
  ]
}
)";

// The message of the error that a text is refused with; empty: it is a plan.
std::string refusal_of_plan(const std::string& text) {
  try {
    Plan::from_json(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string with(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

TEST(PlanAsJson, IsWrittenToTheByteAndReadBack) {
  Plan plan = small_plan();
  plan.cast_optional_params = true;
  EXPECT_EQ(plan.to_json(), kSmallPlan);
  const Plan read = Plan::from_json(kSmallPlan);
  EXPECT_EQ(read.to_json(), kSmallPlan);
  EXPECT_EQ(read.io_of, plan.io_of);
}

TEST(PlanAsJson, ReadsWhatEarlierVersionsEscaped) {
  const Plan read =
      Plan::from_json(with(kSmallPlan, "matrix unit", "a\\u000ab \\/ \\ud83d\\ude00"));
  EXPECT_EQ(read.decisions[0].why, "a\nb / \xF0\x9F\x98\x80");
}

TEST(PlanAsJson, IsRefusedByTheMemberThatIsMissingOrOfAnotherKind) {
  EXPECT_THAT(refusal_of_plan(with(kSmallPlan, "\"low\": true,", "")),
              HasSubstr("'decisions[0].low' is missing"));
  EXPECT_THAT(refusal_of_plan(with(kSmallPlan, "\"low\": true", "\"low\": 1")),
              HasSubstr("'decisions[0].low' is no flag but number"));
  EXPECT_THAT(refusal_of_plan(with(kSmallPlan, "\"float16\"\n", "7\n")),
              HasSubstr("'io_of' is no object of texts"));
  EXPECT_THAT(refusal_of_plan(with(kSmallPlan, "\"w\"", "null")),
              HasSubstr("'float_weights' is no list of texts"));
  EXPECT_THAT(refusal_of_plan(with(kSmallPlan, "\"opset\": \"keep\"", "\"opset\": []")),
              HasSubstr("'opset' is no text but array"));
  EXPECT_THAT(refusal_of_plan("[]"), HasSubstr("no object but array"));
  EXPECT_THAT(refusal_of_plan("{\"format\": \"x\"}"), HasSubstr("make the plan again"));
}

TEST(PlanAsJson, IsRefusedByLineAndColumnWhereItIsNoJson) {
  EXPECT_THAT(refusal_of_plan("nonsense"), HasSubstr("line 1, column 2"));
  EXPECT_THAT(
      refusal_of_plan(with(kSmallPlan, "\"weights_only\": false", "\"weights_only\" false")),
      AllOf(HasSubstr("line 5"), testing::Not(HasSubstr("json.exception"))));
  EXPECT_NE(refusal_of_plan(std::string(kSmallPlan) + "x"), "");
  EXPECT_NE(refusal_of_plan(""), "");
  EXPECT_NE(refusal_of_plan("{\"format\": \"\xFF\"}"), "");
}

TEST(PlanAsJson, IsRefusedWhereItIsHostile) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_THAT(refusal_of_plan(nested(65)), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(refusal_of_plan(nested(1'000'000)), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(refusal_of_plan(nested(64)), HasSubstr("no object but array"));
  EXPECT_THAT(refusal_of_plan(std::string(1'000'000, '[')), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(refusal_of_plan(with(kSmallPlan, "true", "1e999")), HasSubstr("1e999"));
  EXPECT_THAT(refusal_of_plan(with(kSmallPlan, "\"low\": true", "\"low\": true, \"low\": false")),
              HasSubstr("'low' stands twice in an object"));
  EXPECT_EQ(refusal_of_plan(kSmallPlan), "");
}

TEST(ReportAsJson, KeepsItsOrderAndHasNullForWhatIsNoNumber) {
  Report report;
  report.input = "in.onnx";
  OutputError error;
  error.name = "y";
  error.max_absolute = 0.5;
  error.sqnr_db = std::nan("");
  report.errors = {error};
  const std::string text = report.to_json();
  EXPECT_THAT(text, testing::StartsWith("{\n  \"input\": \"in.onnx\",\n  \"output\": \"\",\n"));
  EXPECT_THAT(text, HasSubstr("      \"max_absolute\": 0.5,\n"));
  EXPECT_THAT(text, HasSubstr("      \"sqnr_db\": null,\n"));
  EXPECT_THAT(text, testing::EndsWith("  \"casts\": [],\n  \"decisions\": []\n}\n"));
}

TEST(ReportAsJson, HoldsNamesThatAreNoUtf8) {
  Inspection inspection;
  inspection.path =
      "a\xFF"
      "b";
  EXPECT_THAT(inspection.to_json(), HasSubstr("\"path\": \"a\xEF\xBF\xBD"
                                              "b\""));
}

}  // namespace
}  // namespace mezzo::convert
