// Numbers of loops: what long sums are worth after thousands of turns.
#include <gmock/gmock.h>

#include <array>

#include "evaluator.h"
#include "loops.h"

namespace mezzo::convert {
namespace {

class StatesNumbers : public JudgedConversions {
 protected:
  // The error of a conversion that saw no samples, relative to the range of the output.
  double error_of(const Message& made, const std::string& dtype, bool without_pin = false) {
    save(in(), made);
    options_.target_dtype = dtype;
    options_.verify = "none";
    options_.calibration.clear();
    options_.without_pins.clear();
    if (without_pin) options_.without_pins = {"states"};
    const Plan plan = plan_model(in(), options_);
    save(folder_ / "x.pb", floats("x", {kTurns, 2, 2}, rows()));
    const Judges judges{.verify = "run",
                        .calibration = {folder_ / "x.pb"},
                        .evaluator = MEZZO_EVALUATOR,
                        .onnxruntime = folder_};
    return apply_plan(in(), out(), plan, judges).report.errors.at(0).relative_to_range;
  }

  // They grow, so that a mean of the last ones alone is another one.
  static std::vector<float> rows() {
    std::minstd_rand random(7);
    std::uniform_real_distribution<float> uniform(0, 1);
    std::vector<float> values(kTurns * 4);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = uniform(random) + static_cast<float>(i) / static_cast<float>(values.size());
    return values;
  }

  static constexpr std::int64_t kTurns = 3000;
};

TEST_F(StatesNumbers, OfSumsAreAccurateAfterThousandsOfTurns) {
  const std::vector<std::pair<const char*, Message (*)()>> models{
      {"mean", running_mean},
      {"decay", decayed_sum},
      {"resonator", resonator},
      {"gate", gated_state},
      {"sum", [] { return sum_of_products(LoopKind::kLoop); }}};
  for (const auto& [name, make] : models) {
    EXPECT_LT(error_of(make(), "float16"), 0.004) << name;
    EXPECT_LT(error_of(make(), "bfloat16"), 0.03) << name;
  }
}

TEST_F(StatesNumbers, OfSumsAreLostWhereTheCallerLeavesThePinOut) {
  EXPECT_GT(error_of(running_mean(), "bfloat16", true), 0.05);
  EXPECT_GT(error_of(sum_of_products(LoopKind::kScan), "bfloat16", true), 0.2);
}

std::array<double, 4> times_weights(const std::array<double, 4>& a) {
  const std::array<double, 4> w{0.5, -0.25, 0.75, 0.375};
  return {a[0] * w[0] + a[1] * w[2], a[0] * w[1] + a[1] * w[3], a[2] * w[0] + a[3] * w[2],
          a[2] * w[1] + a[3] * w[3]};
}

// The mean in double, times the weights of both products.
TEST_F(StatesNumbers, OfARunningMeanAreTheMean) {
  error_of(running_mean(), "float16");
  const std::vector<float> x = rows();
  std::array<double, 4> mean{};
  for (std::size_t i = 0; i < x.size(); ++i) mean.at(i % 4) += x[i] / kTurns;
  Document document(out());
  const Graph graph(document);
  const std::vector<DatumPtr> got = Evaluation(library(), document, graph)
                                        .run({{"x", array(Element::kFloat, {kTurns, 2, 2}, x)}});
  const std::vector<double> y = got.at(0)->tensor.values();
  const std::array<double, 4> expected = times_weights(times_weights(mean));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(y.at(i), expected.at(i), 2e-3);
}

}  // namespace
}  // namespace mezzo::convert
