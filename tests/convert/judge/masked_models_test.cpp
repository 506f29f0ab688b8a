// Masks of -1e9 hide what they hid before: computed by the built-in evaluator.
#include <cmath>
#include <limits>

#include "convert/judge/metrics.h"
#include "evaluator.h"
#include "masked_models.h"

namespace mezzo::convert {
namespace {

class MaskedModels : public JudgedConversions {
 protected:
  // The error of the result as share of the output's range.
  double error_of(const Message& made, const Sample& sample) {
    save(in(), made);
    options_.verify = "none";
    convert_model(in(), out(), options_);
    const std::string bytes = contents(out());
    const std::vector<Array> got = evaluated(Message::parse(bytes), sample);
    const OutputError error = compare_outputs("y", evaluated(made, sample)[0], got[0]);
    return error.finite ? error.relative_to_range : std::numeric_limits<double>::infinity();
  }

  static Sample sample_of(MaskKind kind, float far) {
    return {{"x", array(Element::kFloat, {1, 6, 8}, uniform_values(48, 2, 5))},
            {"mask", array(Element::kFloat, {6, 6}, mask_values(kind, far))}};
  }
};

TEST_F(MaskedModels, HideWholeRowsAsInFloat) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  for (const MaskKind kind : kMaskKinds) {
    for (const float far : {-1e4F, -1e9F, kLowest}) {
      for (const char* dtype : {"float16", "bfloat16"}) {
        options_.target_dtype = dtype;
        const double most = options_.target_dtype == "float16" ? 5e-3 : 4e-2;
        EXPECT_LT(error_of(masked_attention(kind, 23, far), sample_of(kind, far)), most)
            << name_of(kind) << ' ' << dtype << ' ' << far;
      }
    }
  }
}

TEST_F(MaskedModels, DoSoInPieces) {
  for (const MaskKind kind : kPieceKinds) {
    for (const float far : {-1e9F, std::numeric_limits<float>::lowest()}) {
      for (const char* dtype : {"float16", "bfloat16"}) {
        options_.target_dtype = dtype;
        const double most = options_.target_dtype == "float16" ? 5e-3 : 4e-2;
        EXPECT_LT(error_of(masked_attention(kind), sample_of(kind, far)), most)
            << name_of(kind) << ' ' << dtype << ' ' << far;
      }
    }
  }
}

// Minus infinity hides a place for good.
TEST_F(MaskedModels, KeepInfinities) {
  std::vector<float> values(36, 0.0F);
  values[1] = values[9] = values[35] = -std::numeric_limits<float>::infinity();
  for (const MaskKind kind : {MaskKind::kGiven, MaskKind::kMoved, MaskKind::kInPieces}) {
    Sample sample = sample_of(kind, -1);
    sample["mask"] = array(Element::kFloat, {6, 6}, values);
    EXPECT_LT(error_of(masked_attention(kind), sample), 5e-3) << name_of(kind);
  }
}

}  // namespace
}  // namespace mezzo::convert
