// Random numbers in the evaluator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "evaluator.h"

namespace mezzo::convert {
namespace {

using Dims = std::vector<std::int64_t>;

// Ten thousand numbers drawn by one operator.
std::vector<double> drawn(const char* op, Message a, Message b) {
  GraphBuilder g;
  const Dims shape{100, 100};
  if (std::string_view(op).ends_with("Like")) {
    g.input("x", Element::kFloat, shape).node(op, {"x"}, {"y"}, std::move(a), std::move(b));
  } else {
    g.node(op, {}, {"y"}, integers_attribute("shape", shape), std::move(a), std::move(b));
  }
  const Message made = model(g.output("y", Element::kFloat, shape).take());
  Sample sample;
  if (std::string_view(op).ends_with("Like")) sample["x"] = random_floats(shape, 1);
  const std::vector<double> once = evaluated(made, sample).at(0).values();
  EXPECT_EQ(once, evaluated(made, sample).at(0).values()) << op << ": other numbers the next time";
  return once;
}

TEST(EvaluatedRandomNumbers, HaveTheMomentsAskedForAndAreTheSameAtEveryRun) {
  const auto moments = [](const std::vector<double>& x) {
    double sum = 0;
    double squares = 0;
    for (const double each : x) {
      sum += each;
      squares += each * each;
    }
    const auto n = static_cast<double>(x.size());
    return std::pair(sum / n, std::sqrt(squares / n - sum * sum / n / n));
  };
  for (const char* op : {"RandomNormal", "RandomNormalLike"}) {
    const auto [mean, deviation] =
        moments(drawn(op, float_attribute("mean", 3), float_attribute("scale", 2)));
    EXPECT_NEAR(mean, 3, 0.1) << op;
    EXPECT_NEAR(deviation, 2, 0.1) << op;
  }
  for (const char* op : {"RandomUniform", "RandomUniformLike"}) {
    const std::vector<double> x = drawn(op, float_attribute("low", -1), float_attribute("high", 5));
    EXPECT_NEAR(moments(x).first, 2, 0.1) << op;
    EXPECT_GE(std::ranges::min(x), -1) << op;
    EXPECT_LE(std::ranges::max(x), 5) << op;
  }
}

TEST(EvaluatedRandomNumbers, AreOneAsOftenAsTheProbabilitySays) {
  GraphBuilder g;
  g.input("p", Element::kFloat, {100, 100}).node("Bernoulli", {"p"}, {"y"});
  const Message made = model(g.output("y", Element::kFloat, {100, 100}).take());
  const Array p = array(Element::kFloat, {100, 100}, std::vector<float>(10000, 0.25F));
  double ones = 0;
  for (const double each : evaluated(made, {{"p", p}}).at(0).values()) ones += each;
  EXPECT_NEAR(ones / 10000, 0.25, 0.02);
}

}  // namespace
}  // namespace mezzo::convert
