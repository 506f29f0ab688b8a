// Training operators in the evaluator.
#include <gtest/gtest.h>

#include <cmath>

#include "evaluator.h"

namespace mezzo::convert {
namespace {

// Against the definition of the standard, in float64; the corpus has one weight and the form with
// several, whose stored outputs belong to another epsilon.
TEST(EvaluatedTraining, AdamMovesSeveralWeightsByItsDefinition) {
  constexpr double kAlpha = 0.95F;
  constexpr double kBeta = 0.85F;
  constexpr double kEpsilon = 0.01F;
  constexpr double kDecay = 0.001F;
  Message node = [] {
    GraphBuilder g;
    g.input("r", Element::kFloat, {}).input("t", Element::kInt64, {});
    for (const char* name : {"x1", "x2", "g1", "g2", "v1", "v2", "h1", "h2"})
      g.input(name, Element::kFloat, {3});
    g.node("Adam", {"r", "t", "x1", "x2", "g1", "g2", "v1", "v2", "h1", "h2"},
           {"a1", "a2", "b1", "b2", "c1", "c2"}, float_attribute("alpha", 0.95F),
           float_attribute("beta", 0.85F), float_attribute("epsilon", 0.01F),
           float_attribute("norm_coefficient", 0.001F));
    for (const char* name : {"a1", "a2", "b1", "b2", "c1", "c2"})
      g.output(name, Element::kFloat, {3});
    return g.take();
  }();
  for (Field& field : node.fields()) {
    if (field.number == field::graph::kNode)
      field.open().set(field::node::kDomain, std::string_view("ai.onnx.preview.training"));
  }
  Message made = model(std::move(node));
  made.add(field::model::kOpsetImport,
           std::make_unique<Message>(opset_import(1, "ai.onnx.preview.training")));
  Sample sample{{"r", array<float>(Element::kFloat, {}, {0.1F})},
                {"t", array<std::int64_t>(Element::kInt64, {}, {4})}};
  for (const char* name : {"x1", "x2", "g1", "g2", "v1", "v2", "h1", "h2"})
    sample[name] = random_floats({3}, static_cast<std::uint32_t>(name[0] * 2 + name[1]));
  for (const char* name : {"h1", "h2"}) {
    for (float& value : floats_of(sample[name])) value = std::fabs(value);
  }
  const std::vector<Array> got = evaluated(made, sample);
  const double rate =
      static_cast<double>(0.1F) * std::sqrt(1 - std::pow(kBeta, 4)) / (1 - std::pow(kAlpha, 4));
  for (const std::size_t k : {0U, 1U}) {
    const std::string digit = std::to_string(k + 1);
    for (std::size_t i = 0; i < 3; ++i) {
      const auto value = [&](const char* list) { return sample[list + digit].values()[i]; };
      const double gradient = value("g") + kDecay * value("x");
      const double v = kAlpha * value("v") + (1 - kAlpha) * gradient;
      const double h = kBeta * value("h") + (1 - kBeta) * gradient * gradient;
      const double x = value("x") - rate * v / (std::sqrt(h) + kEpsilon);
      EXPECT_NEAR(got.at(k).values()[i], x, 1e-5);
      EXPECT_NEAR(got.at(2 + k).values()[i], v, 1e-6);
      EXPECT_NEAR(got.at(4 + k).values()[i], h, 1e-6);
    }
  }
}

}  // namespace
}  // namespace mezzo::convert
