// Operators of the evaluator that libonnx-testdata does not have, or not in every form, against
// their definitions in float64 and against the same in smaller operators.
#include <gmock/gmock.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <random>

#include "evaluator.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;
using testing::ThrowsMessage;
using Dims = std::vector<std::int64_t>;

// The transform by its definition, of pairs or of reals.
std::vector<double> transformed(const std::vector<std::complex<double>>& x, std::int64_t bins,
                                double sign) {
  std::vector<double> pairs;
  const auto size = static_cast<double>(x.size());
  for (std::int64_t k = 0; k < bins; ++k) {
    std::complex<double> sum = 0;
    for (std::size_t n = 0; n < x.size(); ++n) {
      const double turn = static_cast<double>(k) * static_cast<double>(n) / size;
      sum += x[n] * std::polar(1.0, sign * 2 * std::numbers::pi * turn);
    }
    if (sign > 0) sum /= size;
    pairs.push_back(sum.real());
    pairs.push_back(sum.imag());
  }
  return pairs;
}

TEST(EvaluatedSpectra, FollowTheDefinitionForEveryLength) {
  for (const std::int64_t size : {1, 2, 7, 16, 45}) {
    for (const std::int64_t length : {size, size + 3, std::max<std::int64_t>(size - 2, 1)}) {
      for (const bool one_sided : {false, true}) {
        const Array x = random_floats({2, size, 1}, 5);
        GraphBuilder g;
        g.input("x", Element::kFloat, {2, size, 1});
        g.initializer(tensor("length", Element::kInt64, {}, std::vector<std::int64_t>{length}));
        g.initializer(tensor("axis", Element::kInt64, {}, std::vector<std::int64_t>{-2}));
        g.node("DFT", {"x", "length", "axis"}, {"y"}, attribute("onesided", one_sided ? 1 : 0));
        g.output("y", Element::kFloat, {2, -1, 2});
        const Array y = evaluated(model(g.take(), 20), {{"x", x}}).at(0);
        const std::vector<double> values = x.values();
        std::vector<double> expected;
        for (std::int64_t row = 0; row < 2; ++row) {
          std::vector<std::complex<double>> signal(static_cast<std::size_t>(length), 0);
          for (std::int64_t n = 0; n < std::min(length, size); ++n)
            signal[static_cast<std::size_t>(n)] = values[static_cast<std::size_t>(row * size + n)];
          const auto part = transformed(signal, one_sided ? length / 2 + 1 : length, -1);
          expected.insert(expected.end(), part.begin(), part.end());
        }
        EXPECT_THAT(y.values(), Pointwise(DoubleNear(1e-5), expected)) << size << ' ' << length;
      }
    }
  }
}

TEST(EvaluatedSpectra, OfComplexFramesAreTwoSided) {
  const std::int64_t length = 8;
  const Array x = random_floats({1, 20, 2}, 6);
  const Array window = random_floats({length}, 7);
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 20, 2}).input("window", Element::kFloat, {length});
  g.initializer(tensor("step", Element::kInt64, {}, std::vector<std::int64_t>{3}));
  g.node("STFT", {"x", "step", "window"}, {"y"}, attribute("onesided", std::int64_t{0}));
  g.output("y", Element::kFloat, {1, -1, length, 2});
  const Array y = evaluated(model(g.take()), {{"x", x}, {"window", window}}).at(0);
  EXPECT_EQ(y.dims, (Dims{1, 5, length, 2}));
  std::vector<double> expected;
  for (std::size_t start = 0; start + 8 <= 20; start += 3) {
    std::vector<std::complex<double>> frame;
    for (std::size_t n = 0; n < 8; ++n) {
      const std::size_t at = 2 * (start + n);
      frame.push_back(window.values()[n] * std::complex(x.values()[at], x.values()[at + 1]));
    }
    const auto part = transformed(frame, length, -1);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_THAT(y.values(), Pointwise(DoubleNear(1e-5), expected));
}

// Bilinear sampling is exact on planes: a cell is the plane's value at the mean of its samples.
TEST(EvaluatedRegions, OfAPlaneAreItsValuesAtTheCellsMiddles) {
  const std::int64_t height = 16;
  const std::int64_t width = 23;
  std::vector<float> plane;
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) plane.push_back(static_cast<float>(x + 10 * y));
  }
  for (const char* mode : {"half_pixel", "output_half_pixel"}) {
    for (const std::int64_t sampling : {0, 1, 3}) {
      GraphBuilder g;
      g.input("x", Element::kFloat, {1, 1, height, width}).weight("rois", {4, 2, 20, 14}, {1, 4});
      g.initializer(tensor("batch", Element::kInt64, {1}, std::vector<std::int64_t>{0}));
      g.node("RoiAlign", {"x", "rois", "batch"}, {"y"}, attribute("output_height", 2),
             attribute("output_width", 3), attribute("sampling_ratio", sampling),
             attribute("coordinate_transformation_mode", mode));
      g.output("y", Element::kFloat, {1, 1, 2, 3});
      const Message made = model(g.take());
      const Array y =
          evaluated(made, {{"x", array(Element::kFloat, {1, 1, height, width}, plane)}}).at(0);
      const double shift = std::string_view(mode) == "half_pixel" ? 0.5 : 0;
      std::vector<double> expected;
      for (int row = 0; row < 2; ++row) {
        for (int column = 0; column < 3; ++column) {
          const double at_y = (2 + (row + 0.5) * 12 / 2) - shift;
          const double at_x = (4 + (column + 0.5) * 16 / 3) - shift;
          expected.push_back(at_x + 10 * at_y);
        }
      }
      EXPECT_THAT(y.values(), Pointwise(DoubleNear(1e-3), expected)) << mode << ' ' << sampling;
    }
  }
}

TEST(EvaluatedPooling, PositionsPointAtTheLargestValues) {
  for (const std::size_t rank : {1U, 2U, 3U}) {
    Dims shape{2, 3};
    const Dims sizes{7, 6, 5};
    shape.insert(shape.end(), sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(rank));
    const Array x = random_floats(shape, 9);
    GraphBuilder g;
    g.input("x", Element::kFloat, shape);
    g.node("MaxPool", {"x"}, {"y", "i"}, integers_attribute("kernel_shape", Dims(rank, 3)),
           integers_attribute("strides", Dims(rank, 2)),
           integers_attribute("pads", Dims(2 * rank, 1)));
    g.output("y", Element::kFloat, Dims(rank + 2, -1))
        .output("i", Element::kInt64, Dims(rank + 2, -1));
    const std::vector<Array> got = evaluated(model(g.take()), {{"x", x}});
    const std::vector<double> values = x.values();
    const std::vector<double> largest = got.at(0).values();
    const std::vector<double> places = got.at(1).values();
    ASSERT_EQ(places.size(), largest.size());
    for (std::size_t k = 0; k < places.size(); ++k)
      EXPECT_EQ(values.at(static_cast<std::size_t>(places[k])), largest[k]) << rank << ' ' << k;
  }
}

TEST(EvaluatedPooling, RoundsUpToTheOneWindowThatIsLargerThanItsInput) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 1, 2, 2});
  g.node("AveragePool", {"x"}, {"y"}, integers_attribute("kernel_shape", {8, 8}),
         integers_attribute("strides", {8, 8}), attribute("ceil_mode", 1));
  g.output("y", Element::kFloat, {1, 1, -1, -1});
  const Array x = random_floats({1, 1, 2, 2}, 3);
  const std::vector<Array> got = evaluated(model(g.take()), {{"x", x}});
  const std::vector<double> values = x.values();
  ASSERT_EQ(got.at(0).dims, (Dims{1, 1, 1, 1}));
  EXPECT_NEAR(got.at(0).values().at(0), (values[0] + values[1] + values[2] + values[3]) / 4, 1e-6);
}

// One operator on floats of one (in `shapes`) that are its inputs.
template <typename... Attributes>
void expect_refused(const char* reason, const char* op, const std::vector<Dims>& shapes,
                    Attributes... attributes) {
  GraphBuilder g;
  std::vector<std::string> names;
  Sample sample;
  for (const Dims& shape : shapes) {
    names.push_back("x" + std::to_string(names.size()));
    g.input(names.back(), Element::kFloat, shape);
    const std::vector<float> ones(count_of(shape), 1);
    sample[names.back()] = array(Element::kFloat, shape, ones);
  }
  g.node(op, names, {"y"}, std::move(attributes)...).output("y", Element::kFloat, {});
  const Message made = model(g.take(), 23, 11);
  EXPECT_THAT([&] { evaluated(made, sample); }, ThrowsMessage<UnsupportedError>(HasSubstr(reason)))
      << op;
}

TEST(EvaluatedPooling, RefusesWindowsThatAreNone) {
  const Dims image{1, 1, 4, 4};
  const Dims none{0, 0};
  for (const char* op : {"MaxPool", "AveragePool", "LpPool"}) {
    expect_refused("strides is not 2", op, {image}, integers_attribute("kernel_shape", {2, 2}),
                   integers_attribute("strides", none));
    expect_refused("strides is not 2", op, {image}, integers_attribute("kernel_shape", {2, 2}),
                   integers_attribute("strides", {2}));
    expect_refused("kernel_shape is not 2", op, {image}, integers_attribute("kernel_shape", none));
  }
  expect_refused("strides is not", "Conv", {image, image}, integers_attribute("strides", none));
  expect_refused("a weight of 1 axes", "Conv", {image, {1}});
  expect_refused("dilations is not", "ConvTranspose", {image, image},
                 integers_attribute("dilations", none));
  expect_refused("output_shape for fewer", "ConvTranspose", {image, image},
                 integers_attribute("output_shape", {4}));
  expect_refused("output_padding for other", "ConvTranspose", {image, image},
                 integers_attribute("output_padding", {1}));
}

TEST(EvaluatedRegions, RefuseWhatIsNoRegion) {
  const Dims image{2, 1, 4, 4};
  expect_refused("without pixels", "RoiAlign", {{2, 1, 0, 4}, {1, 4}, {1}});
  expect_refused("four numbers", "RoiAlign", {image, {1, 3}, {1}});
  expect_refused("one image each", "RoiAlign", {image, {2, 4}, {1}});
  expect_refused("out of range", "RoiAlign", {{1, 1, 4, 4}, {1, 4}, {1}});  // the second image
  expect_refused("samples in one region", "RoiAlign", {image, {1, 4}, {1}},
                 attribute("sampling_ratio", std::int64_t{1} << 40));
}

TEST(EvaluatedGrams, RefusePoolsThatDoNotFit) {
  expect_refused("a pool of strings", "TfIdfVectorizer", {{4}});
  expect_refused("other than 0 n-grams", "TfIdfVectorizer", {{4}},
                 integers_attribute("pool_int64s", {2}));
  expect_refused("beyond the pool", "TfIdfVectorizer", {{4}},
                 integers_attribute("pool_int64s", {2}),
                 integers_attribute("ngram_counts", {0, 4}));
  expect_refused("other than 3 n-grams", "TfIdfVectorizer", {{4}},
                 integers_attribute("pool_int64s", {2, 3, 5, 4}),
                 integers_attribute("ngram_counts", {0, 2}),
                 integers_attribute("ngram_indexes", {0, 1}));
  expect_refused("before the first", "TfIdfVectorizer", {{4}},
                 integers_attribute("pool_int64s", {2}), integers_attribute("ngram_counts", {0}),
                 integers_attribute("ngram_indexes", {-1}));
}

TEST(EvaluatedAttention, RefusesHeadsThatCannotBeShared) {
  expect_refused("3 heads that share 2", "Attention", {{1, 3, 2, 4}, {1, 2, 2, 4}, {1, 2, 2, 4}});
  expect_refused("1 heads that share 2", "Attention", {{1, 1, 2, 4}, {1, 2, 2, 4}, {1, 2, 2, 4}});
}

TEST(EvaluatedSpectra, RefuseEdgesAndFramesBeyondTheSignal) {
  expect_refused("frames of 8", "STFT", {{1, 4}, {}, {8}});
  expect_refused("a last axis of one", "DFT", {{1, 4, 3}});
  GraphBuilder g;
  g.input("to", Element::kFloat, {});
  for (const char* name : {"bands", "length", "rate"})
    g.initializer(tensor<std::int64_t>(name, Element::kInt64, {}, {8}));
  g.weight("from", {0}, {});
  g.node("MelWeightMatrix", {"bands", "length", "rate", "from", "to"}, {"y"});
  const Message made = model(g.output("y", Element::kFloat, {-1, 8}).take(), 17);
  for (const float to : {-1.0F, 9.0F, INFINITY, NAN}) {
    const Sample sample{{"to", array<float>(Element::kFloat, {}, {to})}};
    EXPECT_THAT([&] { evaluated(made, sample); },
                ThrowsMessage<UnsupportedError>(HasSubstr("edges from 0")));
  }
  const Sample sample{{"to", array<float>(Element::kFloat, {}, {4})}};
  EXPECT_EQ(evaluated(made, sample).at(0).dims, (Dims{5, 8}));
}

/// How the one operator and its parts are asked the same.
struct AttentionCase {
  bool is_causal, has_past, has_mask;
};

Message attention_model(const AttentionCase& how, bool in_parts) {
  GraphBuilder g;
  g.input("q", Element::kFloat, {2, 4, 3, 8}).input("k", Element::kFloat, {2, 2, 5, 8});
  g.input("v", Element::kFloat, {2, 2, 5, 6});
  g.input("past_k", Element::kFloat, {2, 2, 4, 8}).input("past_v", Element::kFloat, {2, 2, 4, 6});
  g.input("mask", Element::kFloat, {3, -1}).input("triangle", Element::kFloat, {3, -1});
  if (!in_parts) {
    g.node("Attention",
           {"q", "k", "v", how.has_mask ? "mask" : "", how.has_past ? "past_k" : "",
            how.has_past ? "past_v" : ""},
           {"y"}, attribute("is_causal", how.is_causal ? 1 : 0));
    return model(g.output("y", Element::kFloat, {2, 4, 3, 6}).take(), 23, 11);
  }
  g.weight("scale", {1 / std::sqrt(8.0F)}, {});
  for (const std::string name : {"k", "v"}) {
    const std::string whole = how.has_past ? name + "_whole" : name;
    if (how.has_past) g.node("Concat", {"past_" + name, name}, {whole}, attribute("axis", 2));
    g.node("Gather", {whole, name + "_heads"}, {name + "_all"}, attribute("axis", 1));
    g.initializer(tensor<std::int64_t>(name + "_heads", Element::kInt64, {4}, {0, 0, 1, 1}));
  }
  g.node("Transpose", {"k_all"}, {"k_turned"}, integers_attribute("perm", {0, 1, 3, 2}));
  g.node("MatMul", {"q", "k_turned"}, {"raw"}).node("Mul", {"raw", "scale"}, {"scaled"});
  g.node(how.has_mask ? "Add" : "Identity",
         how.has_mask ? std::vector<std::string>{"scaled", "mask"}
                      : std::vector<std::string>{"scaled"},
         {"masked"});
  g.node("Add", {"masked", "triangle"}, {"seen"}).node("Softmax", {"seen"}, {"weights"});
  g.node("MatMul", {"weights", "v_all"}, {"y"}).output("y", Element::kFloat, {2, 4, 3, 6});
  return model(g.take(), 23, 11);
}

TEST(EvaluatedAttention, IsTheSumOfItsParts) {
  for (int bits = 0; bits < 8; ++bits) {
    const AttentionCase how{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
    const std::int64_t past = how.has_past ? 4 : 0;
    std::vector<float> triangle;
    for (std::int64_t query = 0; query < 3; ++query) {
      for (std::int64_t key = 0; key < 5 + past; ++key)
        triangle.push_back(how.is_causal && key > query + past ? -INFINITY : 0.0F);
    }
    Sample sample{{"q", random_floats({2, 4, 3, 8}, 1)},
                  {"k", random_floats({2, 2, 5, 8}, 2)},
                  {"v", random_floats({2, 2, 5, 6}, 3)},
                  {"past_k", random_floats({2, 2, 4, 8}, 4)},
                  {"past_v", random_floats({2, 2, 4, 6}, 5)},
                  {"mask", random_floats({3, 5 + past}, 6)},
                  {"triangle", array(Element::kFloat, {3, 5 + past}, triangle)}};
    const Array whole = evaluated(attention_model(how, false), sample).at(0);
    const Array parts = evaluated(attention_model(how, true), sample).at(0);
    EXPECT_EQ(whole.dims, parts.dims);
    EXPECT_THAT(whole.values(), Pointwise(DoubleNear(1e-5), parts.values())) << bits;
  }
}

TEST(EvaluatedImages, ColumnsAddUpWhereTheyOverlap) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 4, 4});
  g.initializer(tensor<std::int64_t>("size", Element::kInt64, {2}, {3, 3}));
  g.initializer(tensor<std::int64_t>("block", Element::kInt64, {2}, {2, 2}));
  g.node("Col2Im", {"x", "size", "block"}, {"y"}).output("y", Element::kFloat, {1, 1, 3, 3});
  const Array ones = array(Element::kFloat, {1, 4, 4}, std::vector<float>(16, 1));
  EXPECT_THAT(evaluated(model(g.take(), 18), {{"x", ones}}).at(0).values(),
              ElementsAre(1, 2, 1, 2, 4, 2, 1, 2, 1));
}

TEST(EvaluatedImages, GridsAreAffineMapsOfThePixelsMiddles) {
  GraphBuilder g;
  g.input("theta", Element::kFloat, {1, 2, 3});
  g.initializer(tensor<std::int64_t>("size", Element::kInt64, {4}, {1, 1, 2, 2}));
  g.node("AffineGrid", {"theta", "size"}, {"y"}).output("y", Element::kFloat, {1, 2, 2, 2});
  const Array theta = array(Element::kFloat, {1, 2, 3}, std::vector<float>{2, 0, 1, 0, 4, 0});
  EXPECT_THAT(evaluated(model(g.take(), 20), {{"theta", theta}}).at(0).values(),
              ElementsAre(0, -2, 2, -2, 0, 2, 2, 2));
}

TEST(EvaluatedUnique, SlicesComeInTheOrderOfTheirFirstPlaces) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {4, 2});
  g.node("Unique", {"x"}, {"y", "first", "places", "counts"}, attribute("axis", std::int64_t{0}),
         attribute("sorted", std::int64_t{0}));
  g.output("y", Element::kFloat, {-1, 2});
  for (const char* name : {"first", "places", "counts"}) g.output(name, Element::kInt64, {-1});
  const Array x = array(Element::kFloat, {4, 2}, std::vector<float>{3, 1, 2, 9, 3, 1, 2, 8});
  const std::vector<Array> got = evaluated(model(g.take()), {{"x", x}});
  EXPECT_THAT(got.at(0).values(), ElementsAre(3, 1, 2, 9, 2, 8));
  EXPECT_THAT(got.at(1).values(), ElementsAre(0, 1, 3));
  EXPECT_THAT(got.at(2).values(), ElementsAre(0, 1, 0, 2));
  EXPECT_THAT(got.at(3).values(), ElementsAre(2, 1, 1));
}

TEST(EvaluatedRecurrent, TheBatchMayComeFirst) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {3, 2, 4}).input("h", Element::kFloat, {2, 2, 5});
  g.weight("w", std::vector<float>(160, 0.1F), {2, 20, 4});
  g.weight("r", std::vector<float>(200, -0.2F), {2, 20, 5});
  const auto swap = [] { return integers_attribute("perm", {1, 0, 2}); };
  g.node("Transpose", {"x"}, {"xt"}, swap()).node("Transpose", {"h"}, {"ht"}, swap());
  g.node("LSTM", {"x", "w", "r", "", "", "h", "h"}, {"y0", "h0", "c0"},
         attribute("direction", "bidirectional"), attribute("hidden_size", std::int64_t{5}));
  g.node("LSTM", {"xt", "w", "r", "", "", "ht", "ht"}, {"y1", "h1", "c1"},
         attribute("direction", "bidirectional"), attribute("hidden_size", std::int64_t{5}),
         attribute("layout", std::int64_t{1}));
  g.node("Transpose", {"y1"}, {"y2"}, integers_attribute("perm", {1, 2, 0, 3}));
  g.node("Transpose", {"h1"}, {"h2"}, swap()).node("Transpose", {"c1"}, {"c2"}, swap());
  for (const char* name : {"y0", "y2"}) g.output(name, Element::kFloat, {3, 2, 2, 5});
  for (const char* name : {"h0", "h2", "c0", "c2"}) g.output(name, Element::kFloat, {2, 2, 5});
  const std::vector<Array> got = evaluated(
      model(g.take()), {{"x", random_floats({3, 2, 4}, 1)}, {"h", random_floats({2, 2, 5}, 2)}});
  for (const std::size_t i : {0U, 2U, 4U}) {
    EXPECT_EQ(got.at(i).dims, got.at(i + 1).dims);
    EXPECT_THAT(got.at(i).values(), Pointwise(DoubleNear(1e-6), got.at(i + 1).values()));
  }
}

struct Curve {
  const char* op;
  double (*exact)(double);
  double least, most;  // the range that is walked
};

double gelu_of(double x) {
  return 0.5 * x * std::erfc(-x * std::numbers::sqrt2 / 2);
}

double softplus_of(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

// Operators of one operand, with the whole range in which float32 has a result.
const Curve kCurves[] = {
    {"Abs", [](double x) { return std::fabs(x); }, -1e30, 1e30},
    {"Acos", [](double x) { return std::acos(x); }, -1, 0.999},
    {"Acosh", [](double x) { return std::acosh(x); }, 1.001, 1e18},
    {"Asin", [](double x) { return std::asin(x); }, -1, 1},
    {"Asinh", [](double x) { return std::asinh(x); }, -1e18, 1e18},
    {"Atan", [](double x) { return std::atan(x); }, -1e30, 1e30},
    {"Atanh", [](double x) { return std::atanh(x); }, -0.999, 0.999},
    {"Celu", [](double x) { return x > 0 ? x : std::expm1(x); }, -100, 1e30},
    {"Cosh", [](double x) { return std::cosh(x); }, -88, 88},
    {"Elu", [](double x) { return x > 0 ? x : std::expm1(x); }, -100, 1e30},
    {"Erf", [](double x) { return std::erf(x); }, -10, 10},
    {"Exp", [](double x) { return std::exp(x); }, -87, 88},
    {"Gelu", gelu_of, -12, 1e30},
    {"HardSwish", [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }, -3.5, 1e30},
    {"LeakyRelu", [](double x) { return x > 0 ? x : 0.01F * x; }, -1e30, 1e30},
    {"Log", [](double x) { return std::log(x); }, 1.001, 1e30},
    {"Mish", [](double x) { return x * std::tanh(softplus_of(x)); }, -80, 1e30},
    {"Neg", [](double x) { return -x; }, -1e30, 1e30},
    {"Reciprocal", [](double x) { return 1 / x; }, 1e-30, 1e30},
    {"Selu",
     [](double x) {
       return 1.05070102214813232421875 * (x > 0 ? x : 1.67326319217681884765625 * std::expm1(x));
     },
     -100, 1e30},
    {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80},
    {"Sinh", [](double x) { return std::sinh(x); }, -88, 88},
    {"Softplus", softplus_of, -80, 1e30},
    {"Softsign", [](double x) { return x / (1 + std::fabs(x)); }, -1e30, 1e30},
    {"Sqrt", [](double x) { return std::sqrt(x); }, 0, 1e30},
    {"Tanh", [](double x) { return std::tanh(x); }, -20, 20},
};

// Small and large magnitudes alike, of both signs where the range has them.
std::vector<float> walk(double least, double most) {
  std::vector<float> values{static_cast<float>(least), static_cast<float>(most)};
  for (double magnitude = 1e-30; magnitude < 1e31; magnitude *= 1.37) {
    for (const double value : {magnitude, -magnitude}) {
      if (value > least && value < most) values.push_back(static_cast<float>(value));
    }
  }
  for (int i = 1; i < 200 && most - least < 1e3; ++i)
    values.push_back(static_cast<float>(least + (most - least) * i / 200));
  return values;
}

TEST(EvaluatedCurves, FollowFloat64OverTheirWholeRange) {
  for (const Curve& curve : kCurves) {
    const std::vector<float> x = walk(curve.least, curve.most);
    const auto size = static_cast<std::int64_t>(x.size());
    GraphBuilder g;
    g.input("x", Element::kFloat, {size}).node(curve.op, {"x"}, {"y"});
    const Message made = model(g.output("y", Element::kFloat, {size}).take(), 22);
    const std::vector<double> y =
        evaluated(made, {{"x", array(Element::kFloat, {size}, x)}}).at(0).values();
    ASSERT_EQ(y.size(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = curve.exact(static_cast<double>(x[i]));
      // A few units in the last place, and what float32 has below its smallest normal number.
      EXPECT_NEAR(y[i], exact, 2e-6 * std::fabs(exact) + 1.5e-45) << curve.op << '(' << x[i] << ')';
    }
  }
}

TEST(EvaluatedCurves, OfGelusTanhKeepTheirTail) {
  const std::vector<float> x{-9, -6, -4, -1, -1e-20F, 0, 1e-20F, 1, 6, 1e30F};
  GraphBuilder g;
  g.input("x", Element::kFloat, {10}).node("Gelu", {"x"}, {"y"}, attribute("approximate", "tanh"));
  const Message made = model(g.output("y", Element::kFloat, {10}).take(), 20);
  const std::vector<double> y =
      evaluated(made, {{"x", array(Element::kFloat, {10}, x)}}).at(0).values();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i];
    const double twice = 2 * std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
    const double exact = v / (1 + std::exp(-twice));
    EXPECT_NEAR(y[i], exact, 2e-6 * std::fabs(exact) + 1.5e-45) << v;
  }
}

TEST(EvaluatedSums, OfExponentialsKeepWhatTheLargestLeaves) {
  const std::vector<float> x{-200, -201, 3e4F, 3e4F, -3e38F, 0, 5, -90};
  GraphBuilder g;
  g.input("x", Element::kFloat, {4, 2});
  g.initializer(tensor<std::int64_t>("axes", Element::kInt64, {1}, {1}));
  g.node("ReduceLogSumExp", {"x", "axes"}, {"s"}, attribute("keepdims", std::int64_t{0}));
  g.node("LogSoftmax", {"x"}, {"l"});
  g.output("s", Element::kFloat, {4}).output("l", Element::kFloat, {4, 2});
  const std::vector<Array> y =
      evaluated(model(g.take(), 18), {{"x", array(Element::kFloat, {4, 2}, x)}});
  for (std::size_t row = 0; row < 4; ++row) {
    const double a = x[2 * row];
    const double b = x[2 * row + 1];
    const double sum = std::max(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
    EXPECT_NEAR(y[0].values()[row], sum, 2e-6 * std::fabs(sum)) << row;
    EXPECT_NEAR(y[1].values()[2 * row], a - sum, 2e-6 * std::fabs(a - sum) + 1e-37) << row;
    EXPECT_NEAR(y[1].values()[2 * row + 1], b - sum, 2e-6 * std::fabs(b - sum) + 1e-37) << row;
  }
}

}  // namespace
}  // namespace mezzo::convert
