// Small models of what other converters were reported to get wrong, in every mode, computed by the
// built-in evaluator.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>

#include "convert/judge/metrics.h"
#include "evaluator.h"
#include "half_island.h"
#include "small_models.h"

namespace mezzo::convert {
namespace {

using testing::ElementsAre;

class ReportedModels : public JudgedConversions {
 protected:
  struct Mode {
    std::string dtype, profile = "portable", opset = "auto";
    bool weights_only = false, rounds_weights = true;
  };
  static std::vector<Mode> modes() {
    return {{"float16"},
            {"bfloat16"},
            {"float16", "spec"},
            {"float16", "ort"},
            {"float16", "portable", "keep", true},
            {"bfloat16", "portable", "auto", true},
            {"float16", "portable", "auto", false, false}};
  }
  static std::string text_of(const Mode& mode) {
    return mode.dtype + ' ' + mode.profile + (mode.weights_only ? " weights only" : "") +
           (mode.rounds_weights ? "" : " weights cast");
  }

  std::vector<Array> converted_outputs(const Message& made, const Sample& sample,
                                       const Mode& mode) {
    save(in(), made);
    Options options;
    options.target_dtype = mode.dtype;
    options.profile = mode.profile;
    options.opset = mode.opset;
    options.weights_only = mode.weights_only;
    options.cast_optional_params = mode.rounds_weights;
    options.verify = "none";
    convert_model(in(), out(), options);
    const std::string bytes = contents(out());
    return evaluated(Message::parse(bytes), sample);
  }

  static double difference(const Array& expected, const Array& got) {
    const OutputError error = compare_outputs("y", expected, got);
    const bool is_comparable = error.finite && expected.dims == got.dims;
    return is_comparable ? error.relative_to_range : std::numeric_limits<double>::infinity();
  }

  // bfloat16 has an eighth of the digits.
  void expect_right(const Message& made, const Sample& sample, const std::string& name,
                    double most = 2e-3) {
    const std::vector<Array> expected = evaluated(made, sample);
    for (const Mode& mode : modes()) {
      const std::vector<Array> got = converted_outputs(made, sample, mode);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_LT(difference(expected[i], got[i]), most * (mode.dtype == "float16" ? 1 : 8))
            << name << ", " << text_of(mode);
      }
    }
  }
};

// T5: distances of 8 and more share buckets whose borders are powers of two.
Message buckets_of_distances(bool are_given, bool is_floored) {
  GraphBuilder g;
  g.input("d", are_given ? Element::kFloat : Element::kInt64, {121});
  g.weight("eight", {8}, {}).weight("log16", {std::log(16.0F)}, {});
  g.weight("table", uniform_values(64, 1, 3), {16, 4});
  g.initializer(tensor<std::int64_t>("first", Element::kInt64, {}, {8}));
  g.initializer(tensor<std::int64_t>("last", Element::kInt64, {}, {15}));
  if (!are_given) g.node("Cast", {"d"}, {"f"}, attribute("to", 1));
  g.node("Div", {are_given ? "d" : "f", "eight"}, {"r"}).node("Log", {"r"}, {"l"});
  g.node("Div", {"l", "log16"}, {"s"}).node("Mul", {"s", "eight"}, {"b"});
  if (is_floored) g.node("Floor", {"b"}, {"whole"});
  g.node("Cast", {is_floored ? "whole" : "b"}, {"i"}, attribute("to", 7));
  g.node("Add", {"i", "first"}, {"j"}).node("Min", {"j", "last"}, {"k"});
  g.node("Gather", {"table", "k"}, {"y"});
  return model(g.output("y", Element::kFloat, {121, 4}).take());
}

TEST_F(ReportedModels, DistancesFallIntoTheSameBuckets) {
  std::vector<std::int64_t> whole(121);
  std::vector<float> given(121);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    whole[i] = static_cast<std::int64_t>(i) + 8;
    given[i] = static_cast<float>(whole[i]);
  }
  for (const bool is_floored : {false, true}) {
    expect_right(buckets_of_distances(false, is_floored),
                 {{"d", array(Element::kInt64, {121}, whole)}}, "counted distances");
    expect_right(buckets_of_distances(true, is_floored),
                 {{"d", array(Element::kFloat, {121}, given)}}, "given distances");
  }
}

enum class Angles { kGiven, kCounted, kProduct, kGathered, kOfAProduct, kOfTwoProducts };

// sin and cos of something times 341 frequencies of pi to 10,000 pi, and a product of both.
Message many_frequencies(Angles kind) {
  constexpr std::size_t kCount = 341;
  std::vector<float> frequencies(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    frequencies[i] = static_cast<float>(M_PI * std::pow(10.0, 4.0 * static_cast<double>(i) / 340));
  GraphBuilder g;
  const bool are_integers = kind == Angles::kCounted || kind == Angles::kGathered;
  const bool is_made = kind == Angles::kOfAProduct || kind == Angles::kOfTwoProducts;
  g.input("x", are_integers ? Element::kInt64 : Element::kFloat, {8, is_made ? 4 : 1});
  g.weight("frequencies", frequencies, {1, kCount});
  std::string at = "x";
  if (kind == Angles::kCounted) g.node("Cast", {"x"}, {"f"}, attribute("to", 1));
  if (kind == Angles::kCounted) at = "f";
  if (kind == Angles::kOfTwoProducts) {
    g.weight("a", uniform_values(16, 0.5F, 7), {4, 4}).node("MatMul", {"x", "a"}, {"first"});
    at = "first";
  }
  if (is_made) {
    g.weight("b", uniform_values(4, 0.5F, 8), {4, 1});
    g.node("MatMul", {at, "b"}, {"m"}).node("Sigmoid", {"m"}, {"place"});
    at = "place";
  }
  if (kind == Angles::kGathered) {
    g.initializer(tensor<std::int64_t>("flat", Element::kInt64, {1}, {-1}));
    g.node("Reshape", {"frequencies", "flat"}, {"list"}).node("Gather", {"list", "x"}, {"angle"});
  } else {
    g.node(kind == Angles::kProduct ? "MatMul" : "Mul", {at, "frequencies"}, {"angle"});
  }
  const std::int64_t width = kind == Angles::kGathered ? 2 : 2 * kCount;
  g.node("Sin", {"angle"}, {"s"}).node("Cos", {"angle"}, {"c"});
  g.node("Concat", {"s", "c"}, {"both"}, attribute("axis", 1));
  g.weight("w", uniform_values(static_cast<std::size_t>(width) * 8, 0.1F, 9), {width, 8});
  g.node("MatMul", {"both", "w"}, {"y"});
  return model(g.output("y", Element::kFloat, {8, 8}).take());
}

TEST_F(ReportedModels, AnglesOfHighFrequenciesKeepTheirDigits) {
  for (const Angles kind : {Angles::kGiven, Angles::kCounted, Angles::kProduct, Angles::kGathered,
                            Angles::kOfAProduct, Angles::kOfTwoProducts}) {
    const bool is_made = kind == Angles::kOfAProduct || kind == Angles::kOfTwoProducts;
    Sample sample{{"x", is_made ? array(Element::kFloat, {8, 4}, uniform_values(32, 2, 4))
                                : array(Element::kFloat, {8, 1}, uniform_values(8, 1, 4))}};
    if (kind == Angles::kCounted || kind == Angles::kGathered)
      sample["x"] =
          array<std::int64_t>(Element::kInt64, {8, 1}, {0, 1, 17, 49, 120, 230, 300, 340});
    expect_right(many_frequencies(kind), sample,
                 "angles " + std::to_string(static_cast<int>(kind)));
  }
}

TEST_F(ReportedModels, AnIslandOfHalfStaysWhatItWas) {
  const Sample sample{{"x", array(Element::kFloat, {4, 8}, uniform_values(32, 3, 6))}};
  for (const bool is_made : {false, true}) {
    for (const bool is_multiplied : {false, true}) {
      // Behind a rounded product a sum may fall on the next step of half.
      const double most = is_made && !is_multiplied ? 0.2 : 2e-3;
      expect_right(half_island(is_made, is_multiplied), sample, "island", most);
    }
  }
  const Message made = half_island(false, false);
  for (const Mode& mode : modes())
    EXPECT_EQ(difference(evaluated(made, sample)[0], converted_outputs(made, sample, mode)[0]), 0)
        << text_of(mode);
}

// One constant: scales, which say how large the result is, and factors.
Message shared_scales(bool is_joined) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 3, 10, 4});
  g.weight("w", {0.5F, -0.2F, 0.1F, 0.7F, 0.3F, -0.6F, 0.2F, 0.4F, 0.9F}, {3, 3, 1, 1});
  g.node("Conv", {"x", "w"}, {"c"});
  if (is_joined) {
    g.weight("front", {1, 1}, {2}).weight("back", {2.2F, 2.3F}, {2});
    g.node("Concat", {"front", "back"}, {"scales"}, attribute("axis", std::int64_t{0}));
  } else {
    g.weight("scales", {1, 1, 2.2F, 2.3F}, {4});
  }
  g.node("Mul", {"c", "scales"}, {"m"}).node("Resize", {"m", "", "scales"}, {"r"});
  g.node("Conv", {"r", "w"}, {"y"});
  return model(g.output("y", Element::kFloat, {1, 3, 22, 9}).take());
}

TEST_F(ReportedModels, AConstantIsScalesAndAFactor) {
  const Sample sample{{"x", array(Element::kFloat, {1, 3, 10, 4}, uniform_values(120, 2, 7))}};
  for (const bool is_joined : {false, true}) {
    ASSERT_THAT(evaluated(shared_scales(is_joined), sample)[0].dims, ElementsAre(1, 3, 22, 9));
    expect_right(shared_scales(is_joined), sample, is_joined ? "joined" : "shared");
  }
}

}  // namespace
}  // namespace mezzo::convert
