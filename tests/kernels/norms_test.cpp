// Layer and RMS norm of each kernel set against their definitions in double.
#include "kernels/norms.h"

#include <gmock/gmock.h>

#include "kernels/reference.h"

namespace mezzo::kernels {
namespace {

using namespace testing_support;

const OneWorker kOneNorm;

struct NormCase {
  const char* name;
  bool rms;
  bool weight;
  bool residual;
  bool from_output;
  bool bias = weight && !rms;
};
constexpr NormCase kNormCases[] = {{"Layer", false, true, false, false},
                                   {"LayerWithoutWeights", false, false, false, false},
                                   {"LayerWithResidual", false, true, true, false},
                                   {"LayerFromItsOutput", false, true, false, true},
                                   {"LayerWithBiasFromItsOutput", false, false, false, true, true},
                                   {"Rms", true, true, false, false},
                                   {"RmsWithoutWeights", true, false, false, false},
                                   {"RmsWithResidual", true, true, true, false},
                                   {"RmsFromItsOutput", true, true, false, true}};

class Norms : public testing::TestWithParam<std::tuple<const KernelSet*, NormCase>> {
 protected:
  void SetUp() override { choose_kernel_set(std::get<0>(GetParam())->name); }
  void TearDown() override { choose_kernel_set(usable_kernel_sets().back()->name); }
  const NormCase& norm() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Norms,
                         testing::Combine(testing::ValuesIn(usable_kernel_sets()),
                                          testing::ValuesIn(kNormCases)),
                         [](const auto& row) {
                           return std::string(std::get<0>(row.param)->name) + "_" +
                                  std::get<1>(row.param).name;
                         });

struct Buffers {
  Array x, residual, weight, bias, dy, dsum, sum, y, dx, mean, rstd, dweight, dbias;
  NormShape shape;

  Buffers(DType dtype, DType weight_dtype, std::int64_t rows, std::int64_t columns, bool rms,
          DType stats)
      : x(Array::random(dtype, rows * columns, 1)),
        residual(Array::random(dtype, rows * columns, 2)),
        weight(Array::random(weight_dtype, columns, 3, 0.5, 1.5)),
        bias(Array::random(weight_dtype, columns, 4)),
        dy(Array::random(dtype, rows * columns, 5)),
        dsum(Array::random(dtype, rows * columns, 6)),
        sum(dtype, rows * columns),
        y(dtype, rows * columns),
        dx(dtype, rows * columns),
        mean(stats, rows),
        rstd(stats, rows),
        dweight(stats, columns),
        dbias(stats, columns),
        shape{rows, columns, 1e-3, rms, stats == DType::kFloat64} {}
};

Rows rows_of(const Array& array) {
  return {array.data(), array.dtype()};
}
RowsOut rows_of(Array& array, int) {
  return {array.data(), array.dtype()};
}

struct Expected {
  std::vector<double> y, dx, dweight, dbias, mean, rstd;
};

Expected definition(const Buffers& b, const NormCase& c) {
  const auto [rows, columns, eps, rms, wide] = b.shape;
  Expected e;
  e.dweight.resize(static_cast<std::size_t>(columns));
  e.dbias.resize(static_cast<std::size_t>(columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto x = [&](std::int64_t i) {
      const std::int64_t at = row * columns + i;
      return c.residual ? rounded_to(b.x[at] + b.residual[at], b.x.dtype()) : b.x[at];
    };
    const auto w = [&](std::int64_t i) { return c.weight ? b.weight[i] : 1.0; };
    double mean = 0;
    for (std::int64_t i = 0; i < columns && !rms; ++i) mean += x(i) / double(columns);
    double variance = 0;
    for (std::int64_t i = 0; i < columns; ++i)
      variance += (x(i) - mean) * (x(i) - mean) / double(columns);
    const double rstd = 1 / std::sqrt(variance + eps);
    e.mean.push_back(mean);
    e.rstd.push_back(rstd);
    double along = 0;
    double average = 0;
    for (std::int64_t i = 0; i < columns; ++i) {
      const double hat = (x(i) - mean) * rstd;
      const double g = b.dy[row * columns + i];
      e.y.push_back(hat * w(i) + (c.bias ? b.bias[i] : 0));
      e.dweight[static_cast<std::size_t>(i)] += g * hat;
      e.dbias[static_cast<std::size_t>(i)] += g;
      along += g * w(i) * hat / double(columns);
      if (!rms) average += g * w(i) / double(columns);
    }
    for (std::int64_t i = 0; i < columns; ++i) {
      const double hat = (x(i) - mean) * rstd;
      e.dx.push_back((b.dy[row * columns + i] * w(i) - hat * along - average) * rstd +
                     (c.residual ? b.dsum[row * columns + i] : 0));
    }
  }
  return e;
}

void run(Buffers& b, const NormCase& c, const Workers& workers) {
  NormForward f;
  f.shape = b.shape;
  f.x = rows_of(b.x);
  if (c.residual) {
    f.residual = rows_of(b.residual);
    f.sum = rows_of(b.sum, 0);
  }
  if (c.weight) f.weight = rows_of(b.weight);
  if (c.bias) f.bias = rows_of(b.bias);
  f.y = rows_of(b.y, 0);
  f.mean = c.rms ? nullptr : b.mean.data();
  f.rstd = b.rstd.data();
  norm_forward(f, workers);

  NormBackward g;
  g.shape = b.shape;
  g.dy = rows_of(b.dy);
  g.x = c.from_output ? rows_of(b.y) : c.residual ? rows_of(b.sum) : rows_of(b.x);
  g.from_output = c.from_output;
  g.weight = f.weight;
  g.bias = f.bias;
  g.mean = c.rms || c.from_output ? nullptr : b.mean.data();
  g.rstd = b.rstd.data();
  if (c.residual) g.dsum = rows_of(b.dsum);
  g.dx = rows_of(b.dx, 0);
  g.dweight = b.dweight.data();
  g.dbias = b.dbias.data();
  std::vector<double> scratch(static_cast<std::size_t>(norm_scratch(b.shape)));
  norm_backward(g, scratch.data(), workers);
}

void expect_near(const Array& got, const std::vector<double>& expected, double tolerance,
                 const char* what) {
  for (std::int64_t i = 0; i < got.count(); ++i) {
    const double e = expected[static_cast<std::size_t>(i)];
    ASSERT_NEAR(got[i], e, tolerance * (1 + std::abs(e))) << what << " " << i;
  }
}

TEST_P(Norms, AgreeWithTheirDefinitionForAllTypesAndShapes) {
  for (const DType dtype : kFloats) {
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                        {3, 17},
                                        {5, 64},
                                        {70, 131},
                                        {2, 1000},
                                        {0, 8}}) {
      const DType stats = dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
      Buffers b(dtype, stats, rows, columns, norm().rms, stats);
      run(b, norm(), kOneNorm);
      const Expected e = definition(b, norm());
      const double rounding = 2 * tolerance_of(dtype);
      // The normalised value is known from the rounded output only.
      const double exact = stats == DType::kFloat64 ? 1e-11
                           : norm().from_output     ? 20 * rounding + 1e-4
                                                    : 5e-5;
      expect_near(b.y, e.y, std::max(rounding, exact), "y");
      if (!norm().rms) expect_near(b.mean, e.mean, exact, "mean");
      expect_near(b.rstd, e.rstd, exact, "rstd");
      expect_near(b.dx, e.dx, std::max(10 * rounding, 10 * exact), "dx");
      expect_near(b.dweight, e.dweight, 10 * exact, "dweight");
      expect_near(b.dbias, e.dbias, 10 * exact, "dbias");
    }
  }
}

class TwoHalves final : public Workers {
 public:
  void run(std::int64_t items, const Task& task) const override {
    if (items / 2 > 0) task(0, items / 2);
    task(items / 2, items);
  }
};

TEST_P(Norms, GiveTheSameBitsForAnyNumberOfWorkers) {
  const TwoHalves halves;
  Buffers one(DType::kFloat32, DType::kFloat32, 500, 33, norm().rms, DType::kFloat32);
  Buffers two = one;
  run(one, norm(), kOneNorm);
  run(two, norm(), halves);
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dx, two.dx);
  EXPECT_EQ(one.dweight, two.dweight);
  EXPECT_EQ(one.dbias, two.dbias);
}

TEST(NormRows, AFarMeanDoesNotDrownTheVariance) {
  constexpr std::int64_t kColumns = 512;
  Array x = Array::random(DType::kFloat32, kColumns, 9);
  for (std::int64_t i = 0; i < kColumns; ++i) x.set(i, 4096 + (i % 2 == 0 ? 1.0 : -1.0));
  Array y(DType::kFloat32, kColumns);
  Array rstd(DType::kFloat32, 1);
  NormForward f;
  f.shape = {1, kColumns, 0, false, false};
  f.x = {x.data(), DType::kFloat32};
  f.y = {y.data(), DType::kFloat32};
  f.rstd = rstd.data();
  norm_forward(f, kOneNorm);
  EXPECT_EQ(rstd[0], 1);
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], -1);
}

TEST(NormRows, HalfRowsThatWouldOverflowInHalfDoNot) {
  Array x = Array::random(DType::kFloat16, 2048, 9, -60000, 60000);
  Array y(DType::kFloat16, 2048);
  NormForward f;
  f.shape = {1, 2048, 0, true, false};
  f.x = {x.data(), DType::kFloat16};
  f.y = {y.data(), DType::kFloat16};
  norm_forward(f, kOneNorm);
  for (const double value : y.values()) ASSERT_LT(std::abs(value), 2);
}

}  // namespace
}  // namespace mezzo::kernels
