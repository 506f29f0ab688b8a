// Operators of the evaluator that add up, against float64 over the range of float32: reductions,
// norms, softmax, pooling, recurrent cells, resizing. It is the judges' reference: what it loses or
// overflows in between would be taken for an error of a conversion, or hide one.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>

#include "evaluator.h"

namespace mezzo::convert {
namespace {

using testing::ElementsAre;
using Numbers = std::vector<double>;
using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kColumns = 6;

// Rows of one magnitude each, from where squares vanish in float32 to where they overflow, of both
// signs and of values that differ.
std::vector<float> rows_of_all_magnitudes() {
  const float magnitudes[kRows] = {1e-30F, 1e-20F, 1e-7F, 1, 300, 1e10F, 1e25F, 3e37F};
  std::vector<float> values;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t i = 0; i < kColumns; ++i) {
      const double unit = std::sin(static_cast<double>(1 + 7 * row + 3 * i));
      values.push_back(static_cast<float>(unit * static_cast<double>(magnitudes[row])));
    }
  }
  return values;
}

Numbers row_of(const std::vector<float>& values, std::int64_t row) {
  const auto begin = values.begin() + row * kColumns;
  return {begin, begin + kColumns};
}

double sum_of(const Numbers& x, const std::function<double(double)>& term) {
  double sum = 0;
  for (const double value : x) sum += term(value);
  return sum;
}

// Rounded as float32 is: beyond its range infinite, and of few digits below its normal numbers.
void expect_float(double got, double exact, double scale, const std::string& what) {
  if (std::fabs(exact) > static_cast<double>(std::numeric_limits<float>::max())) {
    EXPECT_EQ(got, std::copysign(HUGE_VAL, exact)) << what;
    return;
  }
  EXPECT_NEAR(got, exact, 2e-6 * std::max(std::fabs(exact), scale) + 1.5e-45) << what;
}

struct Reduction {
  const char* op;
  double (*exact)(const Numbers&);
  bool is_cancelled = false;  // errors are those of the terms, which may be larger than the sum
};

double mean_of(const Numbers& x) {
  return sum_of(x, [](double v) { return v; }) / static_cast<double>(x.size());
}

double squares_of(const Numbers& x) {
  return sum_of(x, [](double v) { return v * v; });
}

double log_sum_exp_of(const Numbers& x) {
  const double most = *std::ranges::max_element(x);
  return most + std::log(sum_of(x, [&](double v) { return std::exp(v - most); }));
}

const Reduction kReductions[] = {
    {"ReduceL1", [](const Numbers& x) { return sum_of(x, [](double v) { return std::fabs(v); }); }},
    {"ReduceL2", [](const Numbers& x) { return std::sqrt(squares_of(x)); }},
    {"ReduceLogSumExp", log_sum_exp_of},
    {"ReduceMax", [](const Numbers& x) { return *std::ranges::max_element(x); }},
    {"ReduceMean", mean_of, true},
    {"ReduceMin", [](const Numbers& x) { return *std::ranges::min_element(x); }},
    {"ReduceSum", [](const Numbers& x) { return sum_of(x, [](double v) { return v; }); }, true},
    {"ReduceSumSquare", squares_of},
};

TEST(EvaluatedReductions, FollowFloat64OverTheWholeRange) {
  const std::vector<float> x = rows_of_all_magnitudes();
  for (const Reduction& reduction : kReductions) {
    GraphBuilder g;
    g.input("x", Element::kFloat, {kRows, kColumns});
    g.initializer(tensor<std::int64_t>("axes", Element::kInt64, {1}, {1}));
    g.node(reduction.op, {"x", "axes"}, {"y"}, attribute("keepdims", std::int64_t{0}));
    g.output("y", Element::kFloat, {kRows});
    const Numbers y =
        evaluated(model(g.take(), 18), {{"x", array(Element::kFloat, {kRows, kColumns}, x)}})
            .at(0)
            .values();
    for (std::int64_t row = 0; row < kRows; ++row) {
      const Numbers in = row_of(x, row);
      const double largest = std::fabs(
          *std::ranges::max_element(in, {}, [](double value) { return std::fabs(value); }));
      expect_float(y.at(static_cast<std::size_t>(row)), reduction.exact(in),
                   reduction.is_cancelled ? largest : 0,
                   std::string(reduction.op) + " of row " + std::to_string(row));
    }
  }
}

// One operator with one input, and the axes 1 where it reads them.
Numbers reduced(const char* op, const std::vector<float>& x) {
  const auto size = static_cast<std::int64_t>(x.size());
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, size});
  g.initializer(tensor<std::int64_t>("axes", Element::kInt64, {1}, {1}));
  g.node(op, {"x", "axes"}, {"y"}).output("y", Element::kFloat, {1, 1});
  return evaluated(model(g.take(), 18), {{"x", array(Element::kFloat, {1, size}, x)}})
      .at(0)
      .values();
}

TEST(EvaluatedReductions, HoldWhatOverflowsInBetween) {
  EXPECT_NEAR(reduced("ReduceProd", {1e30F, 1e30F, 1e-30F, 2}).at(0), 2e30, 1e25);
  EXPECT_NEAR(reduced("ReduceMean", {3e38F, 3e38F, 1e38F}).at(0), 7e38 / 3, 1e33);
  EXPECT_NEAR(reduced("ReduceLogSum", {3e38F, 3e38F}).at(0), std::log(6e38), 1e-4);
  EXPECT_NEAR(reduced("ReduceSum", {3e38F, 3e38F, -3e38F, 1}).at(0), 3e38, 1e33);
}

TEST(EvaluatedSums, OfWhatCameBeforeLeaveTheValueItselfOut) {
  const std::vector<float> x{1, 1e30F, 1, std::numeric_limits<float>::infinity(), 2};
  GraphBuilder g;
  g.input("x", Element::kFloat, {5});
  g.initializer(tensor<std::int64_t>("axis", Element::kInt64, {}, {0}));
  g.node("CumSum", {"x", "axis"}, {"y"}, attribute("exclusive", std::int64_t{1}));
  g.node("CumSum", {"x", "axis"}, {"z"}, attribute("exclusive", std::int64_t{1}),
         attribute("reverse", std::int64_t{1}));
  g.output("y", Element::kFloat, {5}).output("z", Element::kFloat, {5});
  const std::vector<Array> y =
      evaluated(model(g.take(), 14), {{"x", array(Element::kFloat, {5}, x)}});
  const double large = static_cast<double>(1e30F);
  EXPECT_THAT(y.at(0).values(), ElementsAre(0, 1, large, large, HUGE_VAL));
  EXPECT_THAT(y.at(1).values(), ElementsAre(HUGE_VAL, HUGE_VAL, HUGE_VAL, 2, 0));
}

// Normalises each row: x less its mean, over its standard deviation.
Numbers normalised_row(const Numbers& x, double epsilon) {
  const double mean = mean_of(x);
  const double variance =
      sum_of(x, [&](double v) { return (v - mean) * (v - mean); }) / static_cast<double>(x.size());
  Numbers y;
  for (const double value : x) y.push_back((value - mean) / std::sqrt(variance + epsilon));
  return y;
}

void expect_rows(const Numbers& got, const std::vector<float>& x,
                 const std::function<Numbers(const Numbers&)>& exact, const std::string& what) {
  ASSERT_EQ(got.size(), x.size()) << what;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const Numbers expected = exact(row_of(x, row));
    const double largest = std::fabs(
        *std::ranges::max_element(expected, {}, [](double value) { return std::fabs(value); }));
    for (std::int64_t i = 0; i < kColumns; ++i) {
      expect_float(got[static_cast<std::size_t>(row * kColumns + i)],
                   expected[static_cast<std::size_t>(i)], largest,
                   what + " of row " + std::to_string(row));
    }
  }
}

constexpr double kNormEpsilon = 1e-5F;

TEST(EvaluatedNorms, FollowFloat64OverTheWholeRange) {
  const std::vector<float> x = rows_of_all_magnitudes();
  const auto run = [&](const Shape& shape, int opset,
                       const std::function<void(GraphBuilder&)>& add) {
    GraphBuilder g;
    g.input("x", Element::kFloat, shape);
    add(g);
    g.output("y", Element::kFloat, shape);
    return evaluated(model(g.take(), opset), {{"x", array(Element::kFloat, shape, x)}})
        .at(0)
        .values();
  };
  const auto by_row = [](const Numbers& row) { return normalised_row(row, kNormEpsilon); };
  const std::vector<float> ones(kColumns, 1);
  expect_rows(run({kRows, kColumns}, 17,
                  [&](GraphBuilder& g) {
                    g.weight("s", ones, {kColumns}).node("LayerNormalization", {"x", "s"}, {"y"});
                  }),
              x, by_row, "LayerNormalization");
  expect_rows(
      run({kRows, kColumns}, 23,
          [&](GraphBuilder& g) {
            g.weight("s", ones, {kColumns}).node("RMSNormalization", {"x", "s"}, {"y"});
          }),
      x,
      [](const Numbers& row) {
        Numbers y;
        const double power = squares_of(row) / kColumns;
        for (const double value : row) y.push_back(value / std::sqrt(power + kNormEpsilon));
        return y;
      },
      "RMSNormalization");
  expect_rows(run({kRows, 1, kColumns}, 17,
                  [&](GraphBuilder& g) {
                    g.weight("s", {1}, {1}).weight("b", {0}, {1});
                    g.node("InstanceNormalization", {"x", "s", "b"}, {"y"});
                  }),
              x, by_row, "InstanceNormalization");
  expect_rows(run({1, kRows, kColumns}, 21,
                  [&](GraphBuilder& g) {
                    g.weight("s", std::vector<float>(kRows, 1), {kRows});
                    g.weight("b", std::vector<float>(kRows, 0), {kRows});
                    g.node("GroupNormalization", {"x", "s", "b"}, {"y"},
                           attribute("num_groups", std::int64_t{kRows}));
                  }),
              x, by_row, "GroupNormalization");
  for (const std::int64_t p : {1, 2}) {
    expect_rows(
        run({kRows, kColumns}, 17,
            [&](GraphBuilder& g) { g.node("LpNormalization", {"x"}, {"y"}, attribute("p", p)); }),
        x,
        [&](const Numbers& row) {
          const double norm = p == 2 ? std::sqrt(squares_of(row))
                                     : sum_of(row, [](double v) { return std::fabs(v); });
          Numbers y;
          for (const double value : row) y.push_back(value / norm);
          return y;
        },
        "LpNormalization");
  }
}

TEST(EvaluatedNorms, OfABatchFollowFloat64) {
  const std::vector<float> x = rows_of_all_magnitudes();
  std::vector<float> mean;
  std::vector<float> variance;
  for (std::int64_t row = 0; row < kRows; ++row) {
    mean.push_back(x[static_cast<std::size_t>(row * kColumns)] / 2);
    variance.push_back(std::fabs(x[static_cast<std::size_t>(row * kColumns)]));
  }
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, kRows, kColumns});
  g.weight("s", std::vector<float>(kRows, 0.75F), {kRows});
  g.weight("b", std::vector<float>(kRows, 0), {kRows});
  g.weight("m", mean, {kRows}).weight("v", variance, {kRows});
  g.node("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"});
  g.output("y", Element::kFloat, {1, kRows, kColumns});
  const Numbers y =
      evaluated(model(g.take(), 15), {{"x", array(Element::kFloat, {1, kRows, kColumns}, x)}})
          .at(0)
          .values();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t row = i / kColumns;
    const double root = std::sqrt(static_cast<double>(variance[row]) + kNormEpsilon);
    const double exact = 0.75 * (static_cast<double>(x[i]) - mean[row]) / root;
    expect_float(y.at(i), exact, std::fabs(0.75 * static_cast<double>(x[i]) / root),
                 "BatchNormalization of row " + std::to_string(row));
  }
}

TEST(EvaluatedNorms, OfZerosAreZeros) {
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 3}).node("LpNormalization", {"x"}, {"y"});
  g.output("y", Element::kFloat, {1, 3});
  EXPECT_THAT(evaluated(model(g.take(), 17),
                        {{"x", array(Element::kFloat, {1, 3}, std::vector<float>{0, 0, 0})}})
                  .at(0)
                  .values(),
              ElementsAre(0, 0, 0));
}

TEST(EvaluatedSoftmax, FollowsFloat64OverTheWholeRange) {
  const std::vector<float> x = rows_of_all_magnitudes();
  for (const bool is_log : {false, true}) {
    GraphBuilder g;
    g.input("x", Element::kFloat, {kRows, kColumns});
    g.node(is_log ? "LogSoftmax" : "Softmax", {"x"}, {"y"});
    g.output("y", Element::kFloat, {kRows, kColumns});
    const Numbers y =
        evaluated(model(g.take(), 13), {{"x", array(Element::kFloat, {kRows, kColumns}, x)}})
            .at(0)
            .values();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Numbers row = row_of(x, static_cast<std::int64_t>(i) / kColumns);
      const double exact = static_cast<double>(x[i]) - log_sum_exp_of(row);
      // A difference of float32s has their last place.
      const double scale = std::fabs(static_cast<double>(x[i]));
      if (is_log) {
        expect_float(y.at(i), exact, scale, "LogSoftmax");
      } else {
        EXPECT_NEAR(y.at(i), std::exp(exact), 4e-5 * std::exp(exact) + 1e-44) << i;
      }
    }
  }
}

TEST(EvaluatedPooling, FollowsFloat64OverTheWholeRange) {
  const std::vector<float> x = rows_of_all_magnitudes();
  const Shape in{1, kRows, kColumns};
  const Shape out{1, kRows, kColumns / 2};
  for (const std::string op : {"AveragePool", "LpPool", "MaxPool"}) {
    GraphBuilder g;
    g.input("x", Element::kFloat, in);
    g.node(op, {"x"}, {"y"}, integers_attribute("kernel_shape", {2}),
           integers_attribute("strides", {2}));
    g.output("y", Element::kFloat, out);
    const Numbers y =
        evaluated(model(g.take(), 18), {{"x", array(Element::kFloat, in, x)}}).at(0).values();
    for (std::size_t i = 0; i < x.size() / 2; ++i) {
      const double a = x[2 * i];
      const double b = x[2 * i + 1];
      const double exact = op == "MaxPool"  ? std::max(a, b)
                           : op == "LpPool" ? std::hypot(a, b)
                                            : (a + b) / 2;
      expect_float(y.at(i), exact, op == "AveragePool" ? std::max(std::fabs(a), std::fabs(b)) : 0,
                   op + " at " + std::to_string(i));
    }
  }
}

TEST(EvaluatedPooling, SumsWindowsInFloat64) {
  // 1e8 swallows what is added to it in float32.
  const std::vector<float> x{1e8F, 3, -1e8F, 1e-3F, 5e-4F, 2, 1, -1};
  const Shape in{1, 1, 1, 8};
  GraphBuilder g;
  g.input("x", Element::kFloat, in).node("GlobalAveragePool", {"x"}, {"y"});
  g.node("AveragePool", {"x"}, {"z"}, integers_attribute("kernel_shape", {1, 8}));
  g.output("y", Element::kFloat, {1, 1, 1, 1}).output("z", Element::kFloat, {1, 1, 1, 1});
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value);
  for (const Array& y : evaluated(model(g.take(), 18), {{"x", array(Element::kFloat, in, x)}}))
    EXPECT_NEAR(y.values().at(0), sum / 8, 1e-7);
}

TEST(EvaluatedPooling, HoldsWhatOverflowsInBetween) {
  const std::vector<float> x{3e38F, 3e38F, 3e38F, 1e38F};
  GraphBuilder g;
  g.input("x", Element::kFloat, {1, 1, 4}).node("GlobalAveragePool", {"x"}, {"y"});
  g.node("AveragePool", {"x"}, {"z"}, integers_attribute("kernel_shape", {4}));
  g.output("y", Element::kFloat, {1, 1, 1}).output("z", Element::kFloat, {1, 1, 1});
  for (const Array& y :
       evaluated(model(g.take(), 18), {{"x", array(Element::kFloat, {1, 1, 4}, x)}}))
    EXPECT_NEAR(y.values().at(0), 2.5e38, 1e33);
}

TEST(EvaluatedPooling, TakesEverySecondNumberWhereItIsDilated) {
  const std::vector<float> x{1, 20, 3, 40, 5, 60, 7};
  for (const std::string op : {"AveragePool", "LpPool"}) {
    GraphBuilder g;
    g.input("x", Element::kFloat, {1, 1, 7});
    g.node(op, {"x"}, {"y"}, integers_attribute("kernel_shape", {3}),
           integers_attribute("dilations", {2}), integers_attribute("strides", {2}));
    g.output("y", Element::kFloat, {1, 1, 2});
    const Numbers y = evaluated(model(g.take(), 19), {{"x", array(Element::kFloat, {1, 1, 7}, x)}})
                          .at(0)
                          .values();
    const bool is_mean = op == "AveragePool";
    EXPECT_NEAR(y.at(0), is_mean ? 3.0 : std::sqrt(35.0), 1e-6) << op;
    EXPECT_NEAR(y.at(1), is_mean ? 5.0 : std::sqrt(83.0), 1e-6) << op;
  }
}

TEST(EvaluatedPooling, OfWholePlanesFollowsFloat64OverTheWholeRange) {
  const std::vector<float> x = rows_of_all_magnitudes();
  for (const std::int64_t p : {1, 2, 3}) {
    GraphBuilder g;
    g.input("x", Element::kFloat, {1, kRows, kColumns});
    g.node("GlobalLpPool", {"x"}, {"y"}, attribute("p", p));
    g.output("y", Element::kFloat, {1, kRows, 1});
    const Numbers y =
        evaluated(model(g.take(), 18), {{"x", array(Element::kFloat, {1, kRows, kColumns}, x)}})
            .at(0)
            .values();
    for (std::int64_t row = 0; row < kRows; ++row) {
      const double powers = sum_of(
          row_of(x, row), [&](double v) { return std::pow(std::fabs(v), static_cast<double>(p)); });
      expect_float(y.at(static_cast<std::size_t>(row)),
                   std::pow(powers, 1 / static_cast<double>(p)), 0,
                   "GlobalLpPool of row " + std::to_string(row));
    }
  }
}

double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}

// A layer of one unit over one input, so that its steps are numbers.
struct Cell {
  const char* op;
  std::vector<float> w, r, b;  // a number a gate; the biases are those of w and then of r
  std::vector<double> (*run)(const std::vector<float>& x, const Cell&);
};

std::vector<double> run_rnn(const std::vector<float>& x, const Cell& c) {
  std::vector<double> all;
  double h = 0;
  for (const double value : x) {
    h = std::tanh(c.w[0] * value + c.r[0] * h + c.b[0] + c.b[1]);
    all.push_back(h);
  }
  return all;
}

std::vector<double> run_gru(const std::vector<float>& x, const Cell& c) {
  std::vector<double> all;
  double h = 0;
  for (const double value : x) {
    const double update = sigmoid_of(c.w[0] * value + c.r[0] * h + c.b[0] + c.b[3]);
    const double reset = sigmoid_of(c.w[1] * value + c.r[1] * h + c.b[1] + c.b[4]);
    const double next = std::tanh(c.w[2] * value + c.r[2] * (reset * h) + c.b[5] + c.b[2]);
    h = (1 - update) * next + update * h;
    all.push_back(h);
  }
  return all;
}

std::vector<double> run_lstm(const std::vector<float>& x, const Cell& c) {
  std::vector<double> all;
  double h = 0;
  double state = 0;
  for (const double value : x) {
    const auto gate = [&](std::size_t g) {
      return c.w[g] * value + c.r[g] * h + c.b[g] + c.b[4 + g];
    };
    const double forget = sigmoid_of(gate(2));
    const double input = sigmoid_of(gate(0));
    const double output = sigmoid_of(gate(1));
    state = forget * state + input * std::tanh(gate(3));
    h = output * std::tanh(state);
    all.push_back(h);
  }
  return all;
}

TEST(EvaluatedRecurrent, CellsFollowFloat64OverTheWholeRange) {
  const Cell cells[] = {
      {"RNN", {0.7F}, {-0.4F}, {0.1F, -0.3F}, run_rnn},
      {"GRU",
       {0.7F, -0.2F, 0.9F},
       {-0.4F, 0.3F, 0.8F},
       {0.1F, 0, -0.2F, 0.3F, 0.2F, 0.1F},
       run_gru},
      {"LSTM",
       {0.7F, -0.2F, 0.9F, 0.5F},
       {-0.4F, 0.3F, 0.8F, -0.6F},
       {0.1F, 0, -0.2F, 0.3F, 0.2F, 0.1F, 0.4F, -0.1F},
       run_lstm},
  };
  const std::vector<float> x{0, 1e-20F, -1e-7F, 1e-3F, 0.5F, -1, 3, -20, 100, -1e10F, 1e30F, 0.25F};
  const auto steps = static_cast<std::int64_t>(x.size());
  for (const Cell& cell : cells) {
    const auto gates = static_cast<std::int64_t>(cell.w.size());
    GraphBuilder g;
    g.input("x", Element::kFloat, {steps, 1, 1});
    g.weight("w", cell.w, {1, gates, 1}).weight("r", cell.r, {1, gates, 1});
    g.weight("b", cell.b, {1, 2 * gates});
    g.node(cell.op, {"x", "w", "r", "b"}, {"y"}, attribute("hidden_size", std::int64_t{1}));
    g.output("y", Element::kFloat, {steps, 1, 1, 1});
    const Numbers y =
        evaluated(model(g.take(), 14), {{"x", array(Element::kFloat, {steps, 1, 1}, x)}})
            .at(0)
            .values();
    const std::vector<double> exact = cell.run(x, cell);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(y.at(i), exact[i], 2e-6) << cell.op << " at step " << i;
  }
}

TEST(EvaluatedResize, FollowsFloat64AndTouchesNoValueThatItDoesNotRead) {
  const float infinite = std::numeric_limits<float>::infinity();
  const std::vector<float> x{1e-30F, 3, 1e30F, infinite};
  for (const std::string mode : {"nearest", "linear"}) {
    GraphBuilder g;
    g.input("x", Element::kFloat, {1, 1, 4});
    g.weight("scales", {1, 1, 2}, {3});
    g.node("Resize", {"x", "", "scales"}, {"y"}, attribute("mode", mode.c_str()));
    g.output("y", Element::kFloat, {1, 1, 8});
    const Numbers y = evaluated(model(g.take(), 13), {{"x", array(Element::kFloat, {1, 1, 4}, x)}})
                          .at(0)
                          .values();
    for (std::size_t i = 0; i < 8; ++i) {
      // Pixels are read by their middles, at the edge by the last one.
      const double place = std::clamp((static_cast<double>(i) + 0.5) / 2 - 0.5, 0.0, 3.0);
      const auto left = static_cast<std::size_t>(place);
      const double share = place - static_cast<double>(left);
      double exact = x[mode == "nearest" ? i / 2 : left];
      if (mode == "linear" && share > 0)
        exact =
            (1 - share) * static_cast<double>(x[left]) + share * static_cast<double>(x[left + 1]);
      expect_float(y.at(i), exact, 0, mode + " at " + std::to_string(i));
    }
  }
}

}  // namespace
}  // namespace mezzo::convert
