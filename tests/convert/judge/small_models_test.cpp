// The small models with the built-in evaluator as the judge, which rounds bfloat16, too.
#include "small_models.h"
#include "evaluator.h"

namespace mezzo::convert {
namespace {

TEST(EvaluatedSmallModels, StayRightInEveryModeAndCalibrationMakesThemNoWorse) {
  Judges libraries;
  libraries.onnxruntime = "/nowhere";
  libraries.evaluator = MEZZO_EVALUATOR;
  expect_small_models_stay_right(libraries, {"portable", "spec"});
}

}  // namespace
}  // namespace mezzo::convert
