// The small models with ONNX Runtime as the judge.
#include "small_models.h"

namespace mezzo::convert {
namespace {

TEST(SmallModels, StayRightInEveryMode) {
  Judges libraries;
  libraries.onnxruntime = MEZZO_ONNXRUNTIME;
  libraries.evaluator = "/nowhere";  // ONNX Runtime judges
  expect_small_models_stay_right(libraries, {"portable", "spec", "ort"});
}

}  // namespace
}  // namespace mezzo::convert
