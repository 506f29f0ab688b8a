// Batch norms of each kernel set against their definition in double.
#include "kernels/batch_norm.h"

#include <gmock/gmock.h>

#include "kernels/reference.h"

namespace mezzo::kernels {
namespace {

using testing_support::Array;
using testing_support::kFloats;
using testing_support::tolerance_of;

const OneWorker kOneBatch;

class BatchTwoHalves final : public Workers {
 public:
  void run(std::int64_t items, const Task& task) const override {
    if (items / 2 > 0) task(0, items / 2);
    task(items / 2, items);
  }
};

Rows batch_rows_of(const Array& array) {
  return {array.data(), array.dtype()};
}
RowsOut out_of(Array& array) {
  return {array.data(), array.dtype()};
}

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

constexpr BatchShape kShapes[] = {
    {1, 1, 1}, {2, 1, 1},   {3, 5, 1},   {70, 17, 1}, {200, 64, 1}, {130, 131, 1}, {1500, 40, 1},
    {2, 3, 7}, {1, 5, 100}, {4, 3, 49},  {33, 2, 16}, {3, 2, 5000}, {1, 1, 66000}, {600, 2, 3},
    {0, 4, 9}, {0, 4, 1},   {40, 6, 33}, {2, 33, 65}, {5, 300, 4},  {300, 130, 1}, {7, 0, 3}};

struct Everything {
  BatchShape shape;
  Array x, residual, weight, bias, dy, y, dx, dresidual;
  std::vector<double> mean, m2, rstd, sum_dy, sum_dy_xmu;

  Everything(DType dtype, DType weights, const BatchShape& of, double centre = 0)
      : shape(of),
        x(Array::random(dtype, of.count() * of.channels, 1, centre - 2, centre + 2)),
        residual(Array::random(dtype, of.count() * of.channels, 2)),
        weight(Array::random(weights, of.channels, 3, 0.5, 1.5)),
        bias(Array::random(weights, of.channels, 4)),
        dy(Array::random(dtype, of.count() * of.channels, 5)),
        y(dtype, of.count() * of.channels),
        dx(dtype, of.count() * of.channels),
        dresidual(dtype, of.count() * of.channels),
        mean(at(of.channels)),
        m2(at(of.channels)),
        rstd(at(of.channels)),
        sum_dy(at(of.channels)),
        sum_dy_xmu(at(of.channels)) {}
};

constexpr double kEps = 1e-3;

struct How {
  bool affine;
  bool residual;
  bool relu;
};
constexpr How kHows[] = {
    {true, false, false}, {false, false, true}, {true, true, true}, {false, true, false}};

void run(Everything& e, const How& how, const Workers& workers) {
  std::vector<double> scratch(at(batch_scratch(e.shape)));
  batch_moments(batch_rows_of(e.x), e.shape, {e.mean.data(), e.m2.data()}, scratch.data(), workers);
  const double count = static_cast<double>(e.shape.count());
  for (std::size_t c = 0; c < e.rstd.size(); ++c) e.rstd[c] = 1 / std::sqrt(e.m2[c] / count + kEps);
  BatchNormalise norm;
  norm.shape = e.shape;
  norm.x = batch_rows_of(e.x);
  if (how.residual) norm.residual = batch_rows_of(e.residual);
  norm.y = out_of(e.y);
  norm.mean = e.mean.data();
  norm.rstd = e.rstd.data();
  if (how.affine) norm.weight = batch_rows_of(e.weight);
  if (how.affine) norm.bias = batch_rows_of(e.bias);
  norm.relu = how.relu;
  batch_normalise(norm, workers);
  BatchGradient gradient{e.shape, batch_rows_of(e.dy), batch_rows_of(e.x), {}, e.mean.data()};
  if (how.relu) gradient.relu_output = batch_rows_of(e.y);
  batch_backward_reduce(gradient, e.sum_dy.data(), e.sum_dy_xmu.data(), scratch.data(), workers);
  std::vector<double> mean_dy = e.sum_dy;
  std::vector<double> mean_dy_xmu = e.sum_dy_xmu;
  for (double& value : mean_dy) value /= count;
  for (double& value : mean_dy_xmu) value /= count;
  BatchBackwardApply apply;
  apply.gradient = gradient;
  apply.rstd = e.rstd.data();
  apply.weight = norm.weight;
  apply.mean_dy = mean_dy.data();
  apply.mean_dy_xmu = mean_dy_xmu.data();
  apply.dx = out_of(e.dx);
  if (how.residual) apply.dresidual = out_of(e.dresidual);
  batch_backward_apply(apply, workers);
}

// The definition, a channel at a time.
void expect_definition(const Everything& e, const How& how, double exact) {
  const DType dtype = e.x.dtype();
  const double rounding = tolerance_of(dtype);
  const double count = static_cast<double>(e.shape.count());
  const auto near = [&](double got, double expected, double tolerance, const char* what,
                        std::int64_t i) {
    if (std::abs(got - expected) <= tolerance * (1 + std::abs(expected))) return;
    ASSERT_NEAR(got, expected, tolerance * (1 + std::abs(expected)))
        << what << ' ' << i << ", shape " << e.shape.samples << 'x' << e.shape.channels << 'x'
        << e.shape.places << ", type " << static_cast<int>(dtype);
  };
  for (std::int64_t c = 0; c < e.shape.channels; ++c) {
    std::vector<std::int64_t> places;
    for (std::int64_t n = 0; n < e.shape.samples; ++n) {
      for (std::int64_t s = 0; s < e.shape.places; ++s)
        places.push_back((n * e.shape.channels + c) * e.shape.places + s);
    }
    double mean = 0;
    double m2 = 0;
    for (const std::int64_t i : places) mean += e.x[i] / count;
    for (const std::int64_t i : places) m2 += (e.x[i] - mean) * (e.x[i] - mean);
    near(e.mean[at(c)], mean, exact, "mean", c);
    near(e.m2[at(c)], m2, 20 * exact, "m2", c);
    const double rstd = 1 / std::sqrt(m2 / count + kEps);
    const double weight = how.affine ? e.weight[c] : 1;
    double sum_dy = 0;
    double sum_dy_xmu = 0;
    const auto gradient = [&](std::int64_t i) { return how.relu && e.y[i] <= 0 ? 0 : e.dy[i]; };
    for (const std::int64_t i : places) {
      const double raw = (e.x[i] - mean) * rstd * weight + (how.affine ? e.bias[c] : 0) +
                         (how.residual ? e.residual[i] : 0);
      near(e.y[i], how.relu && raw < 0 ? 0 : raw, std::max(rounding, 10 * exact), "y", i);
      sum_dy += gradient(i);
      sum_dy_xmu += gradient(i) * (e.x[i] - mean);
    }
    const double absolute = 1 + count / 4;
    near(e.sum_dy[at(c)], sum_dy, exact * absolute, "sum_dy", c);
    near(e.sum_dy_xmu[at(c)], sum_dy_xmu, exact * absolute, "sum_dy_xmu", c);
    for (const std::int64_t i : places) {
      const double dx =
          (gradient(i) - sum_dy / count - (e.x[i] - mean) * rstd * rstd * sum_dy_xmu / count) *
          rstd * weight;
      // One over eps: a channel of few numbers may have no variance.
      near(e.dx[i], dx, std::max(2 * rounding, 500 * exact), "dx", i);
      if (how.residual) near(e.dresidual[i], gradient(i), 0, "dresidual", i);
    }
  }
}

class BatchNorms : public testing::TestWithParam<const KernelSet*> {
 protected:
  void SetUp() override { choose_kernel_set(GetParam()->name); }
  void TearDown() override { choose_kernel_set(usable_kernel_sets().back()->name); }
};
INSTANTIATE_TEST_SUITE_P(Kernels, BatchNorms, testing::ValuesIn(usable_kernel_sets()),
                         [](const auto& row) { return std::string(row.param->name); });

TEST_P(BatchNorms, AgreeWithTheirDefinitionForAllTypesShapesAndOptions) {
  for (const DType dtype : kFloats) {
    const bool wide = dtype == DType::kFloat64;
    for (const BatchShape& shape : kShapes) {
      for (const How& how : kHows) {
        // Weights of the input's type, or of another.
        const DType weights = how.residual ? dtype : wide ? DType::kFloat32 : DType::kFloat64;
        Everything e(dtype, weights, shape);
        run(e, how, kOneBatch);
        expect_definition(e, how, wide ? 1e-12 : 2e-6);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(BatchNorms, GiveTheSameBitsForAnyNumberOfWorkers) {
  const BatchTwoHalves halves;
  for (const BatchShape& shape : kShapes) {
    Everything one(DType::kFloat32, DType::kFloat32, shape);
    Everything two = one;
    run(one, kHows[2], kOneBatch);
    run(two, kHows[2], halves);
    EXPECT_EQ(one.mean, two.mean);
    EXPECT_EQ(one.m2, two.m2);
    EXPECT_EQ(one.sum_dy_xmu, two.sum_dy_xmu);
    EXPECT_EQ(one.y, two.y);
    EXPECT_EQ(one.dx, two.dx);
  }
}

// A mean of 10^4 and a deviation of about 1: float has 10^-3 there, and loses none of it.
TEST_P(BatchNorms, AreAsExactFarFromZero) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const BatchShape& shape :
         {BatchShape{64, 33, 1}, BatchShape{3000, 8, 1}, BatchShape{8, 3, 4096}}) {
      Everything e(dtype, dtype, shape, 1e4);
      run(e, kHows[0], kOneBatch);
      const double count = static_cast<double>(shape.count());
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        double mean = 0;
        double m2 = 0;
        const auto place = [&](std::int64_t i) {
          return (i / shape.places * shape.channels + c) * shape.places + i % shape.places;
        };
        for (std::int64_t i = 0; i < shape.count(); ++i) mean += (e.x[place(i)] - 1e4) / count;
        mean += 1e4;
        for (std::int64_t i = 0; i < shape.count(); ++i)
          m2 += (e.x[place(i)] - mean) * (e.x[place(i)] - mean);
        const double exact = dtype == DType::kFloat64 ? 1e-11 : 1e-6;
        ASSERT_NEAR(e.mean[at(c)], mean, exact);
        ASSERT_NEAR(e.m2[at(c)] / m2, 1, exact);
        const double rstd = 1 / std::sqrt(m2 / count + kEps);
        for (std::int64_t i = 0; i < shape.count(); ++i) {
          const double y = (e.x[place(i)] - mean) * rstd * e.weight[c] + e.bias[c];
          ASSERT_NEAR(e.y[place(i)], y, 3 * exact);
        }
      }
    }
  }
}

TEST_P(BatchNorms, ASingleOutlierDoesNotSpoilTheOthers) {
  Array x = Array::random(DType::kFloat32, 4096, 3);
  x.set(0, 1e3);
  double mean = 0;
  double m2 = 0;
  std::vector<double> scratch(at(batch_scratch({1, 1, 4096})));
  batch_moments(batch_rows_of(x), {1, 1, 4096}, {&mean, &m2}, scratch.data(), kOneBatch);
  double expected = 0;
  for (const double value : x.values()) expected += value / 4096;
  EXPECT_NEAR(mean, expected, 1e-4);
}

TEST_P(BatchNorms, NanAndInfinityStayVisible) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const BatchShape& shape : {BatchShape{40, 20, 1}, BatchShape{2, 20, 21}}) {
      Everything e(DType::kFloat32, DType::kFloat32, shape);
      e.x.set(3 * shape.places, bad);
      run(e, kHows[1], kOneBatch);
      EXPECT_TRUE(std::isnan(e.y[3 * shape.places]));
      EXPECT_FALSE(std::isnan(e.y[4 * shape.places]));
      EXPECT_TRUE(std::isnan(e.dx[3 * shape.places]));
    }
  }
}

TEST_P(BatchNorms, WithoutTheMeansTheStatisticsAreConstants) {
  Everything e(DType::kFloat32, DType::kFloat32, {6, 5, 7});
  run(e, kHows[0], kOneBatch);
  BatchBackwardApply apply;
  apply.gradient = {e.shape, batch_rows_of(e.dy), batch_rows_of(e.x), {}, e.mean.data()};
  apply.rstd = e.rstd.data();
  apply.dx = out_of(e.dx);
  batch_backward_apply(apply, kOneBatch);
  for (std::int64_t i = 0; i < e.dx.count(); ++i)
    EXPECT_NEAR(e.dx[i], e.dy[i] * e.rstd[at(i / 7 % 5)], 1e-6);
}

TEST(MergeMoments, GivesThoseOfTheWhole) {
  const Array x = Array::random(DType::kFloat64, 100, 8, 999, 1001);
  std::vector<RankMoments> ranks;
  std::vector<std::array<double, 2>> parts;
  const std::vector<std::int64_t> ends{0, 0, 1, 30, 30, 99, 100};
  parts.resize(ends.size());
  for (std::size_t r = 1; r < ends.size(); ++r) {
    double mean = 0;
    double m2 = 0;
    const double count = static_cast<double>(ends[r] - ends[r - 1]);
    for (std::int64_t i = ends[r - 1]; i < ends[r]; ++i) mean += x[i] / count;
    for (std::int64_t i = ends[r - 1]; i < ends[r]; ++i) m2 += (x[i] - mean) * (x[i] - mean);
    parts[r] = {mean, m2};
    ranks.push_back({count, &parts[r][0], &parts[r][1]});
  }
  double mean = 0;
  double m2 = 0;
  for (const double value : x.values()) mean += value / 100;
  for (const double value : x.values()) m2 += (value - mean) * (value - mean);
  double merged_mean = -1;
  double merged_m2 = -1;
  EXPECT_EQ(merge_moments(ranks, 1, {&merged_mean, &merged_m2}), 100);
  EXPECT_NEAR(merged_mean, mean, 1e-10);
  EXPECT_NEAR(merged_m2, m2, 1e-9);
  EXPECT_EQ(merge_moments({}, 1, {&merged_mean, &merged_m2}), 0);
  EXPECT_EQ(merged_m2, 0);
}

}  // namespace
}  // namespace mezzo::kernels
