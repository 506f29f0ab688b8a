// Batch norm on the device against the CPU's kernels, over types, both layouts, sizes on every
// kernel's path, and addresses.
#include "kernels/cuda/device.h"

namespace mezzo::kernels::cuda {
namespace {

using namespace testing_support;

const OneWorker kOne;

constexpr BatchShape kShapes[] = {
    {1, 1, 1},    {2, 1, 1}, {3, 5, 1},   {70, 16, 1}, {700, 64, 1}, {130, 131, 1}, {90, 8, 1},
    {3000, 3, 1}, {2, 3, 8}, {1, 5, 100}, {4, 3, 49},  {33, 2, 16},  {3, 2, 5000},  {1, 1, 66000},
    {600, 2, 3},  {0, 4, 9}, {0, 4, 1},   {2, 40, 64}, {5, 300, 4},  {2, 600, 1},   {7, 0, 3}};

// Which types: of x, y and dx; of dy, residual and dresidual; of weight and bias.
struct Types {
  DType x, others, weight;
};
constexpr Types kTypes[] = {{DType::kFloat32, DType::kFloat32, DType::kFloat32},
                            {DType::kFloat16, DType::kFloat16, DType::kFloat32},
                            {DType::kBFloat16, DType::kBFloat16, DType::kBFloat16},
                            {DType::kFloat64, DType::kFloat64, DType::kFloat32},
                            {DType::kBFloat16, DType::kFloat32, DType::kFloat64}};

struct How {
  bool affine, residual, relu, constants;
};
constexpr How kHows[] = {{true, false, false, false},
                         {false, false, true, false},
                         {true, true, true, false},
                         {true, true, false, true}};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::int64_t elements_of(const BatchShape& shape) {
  return shape.count() * shape.channels;
}

// The inputs of both sides.
struct Inputs {
  Types types;
  BatchShape shape;
  How how;
  Array x, residual, weight, bias, dy;

  Inputs(Types t, const BatchShape& s, const How& h, double centre = 0)
      : types(t),
        shape(s),
        how(h),
        x(Array::random(t.x, elements_of(s), 1, centre - 2, centre + 2)),
        residual(Array::random(t.others, elements_of(s), 2)),
        weight(Array::random(t.weight, s.channels, 3, 0.5, 1.5)),
        bias(Array::random(t.weight, s.channels, 4)),
        dy(Array::random(t.others, elements_of(s), 5)) {}
};

// The results of one side.
struct Outcome {
  Array mean, m2, y, sum_dy, sum_dy_xmu, dx, dresidual;

  explicit Outcome(const Inputs& in)
      : mean(DType::kFloat64, in.shape.channels),
        m2(mean),
        y(in.types.x, elements_of(in.shape)),
        sum_dy(mean),
        sum_dy_xmu(mean),
        dx(y),
        dresidual(in.types.others, elements_of(in.shape)) {}
};

// The memory of one side.
struct Memory {
  Rows x, residual, weight, bias, dy;
  RowsOut y, dx, dresidual;
  double *mean, *m2, *rstd, *sum_dy, *sum_dy_xmu, *mean_dy, *mean_dy_xmu;
};

BatchNormalise normalise_of(const Inputs& in, const Memory& m) {
  BatchNormalise n;
  n.shape = in.shape;
  n.x = m.x;
  if (in.how.residual) n.residual = m.residual;
  n.y = m.y;
  n.mean = m.mean;
  n.rstd = m.rstd;
  if (in.how.affine) n.weight = m.weight;
  if (in.how.affine) n.bias = m.bias;
  n.relu = in.how.relu;
  return n;
}

BatchBackwardApply apply_of(const Inputs& in, const Memory& m) {
  BatchBackwardApply a;
  a.gradient = {in.shape, m.dy, m.x, {}, m.mean};
  if (in.how.relu) a.gradient.relu_output = {m.y.data, m.y.dtype};
  a.rstd = m.rstd;
  if (in.how.affine) a.weight = m.weight;
  if (!in.how.constants) a.mean_dy = m.mean_dy;
  if (!in.how.constants) a.mean_dy_xmu = m.mean_dy_xmu;
  a.dx = m.dx;
  if (in.how.residual) a.dresidual = m.dresidual;
  return a;
}

Array rstd_of(const Array& m2, const BatchShape& shape) {
  Array result(DType::kFloat64, m2.count());
  const auto count = static_cast<double>(shape.count());
  for (std::int64_t c = 0; c < m2.count(); ++c) {
    result.set(c, 1 / std::sqrt(count == 0 ? 1 : m2[c] / count + 1e-3));
  }
  return result;
}

Array means_of(const Array& sums, const BatchShape& shape) {
  Array result(DType::kFloat64, sums.count());
  const auto count = static_cast<double>(shape.count());
  for (std::int64_t c = 0; c < sums.count(); ++c) result.set(c, count == 0 ? 0 : sums[c] / count);
  return result;
}

double* doubles(Array& array) {
  return static_cast<double*>(array.data());
}

Outcome on_cpu(const Inputs& in) {
  Outcome out(in);
  const auto rows = [](const Array& array) { return Rows{array.data(), array.dtype()}; };
  const auto rows_out = [](Array& array) { return RowsOut{array.data(), array.dtype()}; };
  std::vector<double> scratch(at(kernels::batch_scratch(in.shape)));
  kernels::batch_moments(rows(in.x), in.shape, {doubles(out.mean), doubles(out.m2)}, scratch.data(),
                         kOne);
  Array rstd = rstd_of(out.m2, in.shape);
  Memory m{rows(in.x),
           rows(in.residual),
           rows(in.weight),
           rows(in.bias),
           rows(in.dy),
           rows_out(out.y),
           rows_out(out.dx),
           rows_out(out.dresidual),
           doubles(out.mean),
           doubles(out.m2),
           doubles(rstd),
           doubles(out.sum_dy),
           doubles(out.sum_dy_xmu),
           nullptr,
           nullptr};
  kernels::batch_normalise(normalise_of(in, m), kOne);
  kernels::batch_backward_reduce(apply_of(in, m).gradient, m.sum_dy, m.sum_dy_xmu, scratch.data(),
                                 kOne);
  Array mean_dy = means_of(out.sum_dy, in.shape);
  Array mean_dy_xmu = means_of(out.sum_dy_xmu, in.shape);
  m.mean_dy = doubles(mean_dy);
  m.mean_dy_xmu = doubles(mean_dy_xmu);
  kernels::batch_backward_apply(apply_of(in, m), kOne);
  return out;
}

class CudaBatchNorms : public OnCuda {
 protected:
  // `before` elements lie in front of everything: addresses that wide loads do not take.
  Outcome on_device(const Inputs& in, std::int64_t before) {
    Outcome out(in);
    const DeviceArray x(in.x, before), residual(in.residual, before), weight(in.weight, before),
        bias(in.bias, before), dy(in.dy, before), y(out.y, before), dx(out.dx, before),
        dresidual(out.dresidual, before);
    const DeviceArray mean(out.mean), m2(out.m2), sum_dy(out.sum_dy), sum_dy_xmu(out.sum_dy_xmu);
    const DeviceArray scratch(Array(DType::kFloat64, cuda().batch_scratch(&in.shape, 0)));
    const auto rows = [](const DeviceArray& array) { return Rows{array.data(), array.in().dtype}; };
    const auto rows_out = [](const DeviceArray& array) {
      return RowsOut{array.data(), array.in().dtype};
    };
    const auto numbers = [](const DeviceArray& array) {
      return static_cast<double*>(array.data());
    };
    const Rows of_x = rows(x);
    const Moments moments{numbers(mean), numbers(m2)};
    expect(cuda().batch_moments(&of_x, &in.shape, &moments, numbers(scratch), 0, nullptr));
    out.mean = mean.read();
    out.m2 = m2.read();
    const DeviceArray rstd(rstd_of(out.m2, in.shape));
    Memory m{of_x,          rows(residual),  rows(weight),        rows(bias),    rows(dy),
             rows_out(y),   rows_out(dx),    rows_out(dresidual), numbers(mean), numbers(m2),
             numbers(rstd), numbers(sum_dy), numbers(sum_dy_xmu), nullptr,       nullptr};
    const BatchNormalise normalise = normalise_of(in, m);
    expect(cuda().batch_normalise(&normalise, 0, nullptr));
    const BatchGradient gradient = apply_of(in, m).gradient;
    expect(cuda().batch_backward_reduce(&gradient, m.sum_dy, m.sum_dy_xmu, numbers(scratch), 0,
                                        nullptr));
    out.sum_dy = sum_dy.read();
    out.sum_dy_xmu = sum_dy_xmu.read();
    const DeviceArray mean_dy(means_of(out.sum_dy, in.shape));
    const DeviceArray mean_dy_xmu(means_of(out.sum_dy_xmu, in.shape));
    m.mean_dy = numbers(mean_dy);
    m.mean_dy_xmu = numbers(mean_dy_xmu);
    const BatchBackwardApply apply = apply_of(in, m);
    expect(cuda().batch_backward_apply(&apply, 0, nullptr));
    out.y = y.read();
    out.dx = dx.read();
    out.dresidual = dresidual.read();
    return out;
  }

  void compare(const Inputs& in, std::int64_t before = 0) {
    const Outcome expected = on_cpu(in);
    const Outcome got = on_device(in, before);
    const double exact = in.types.x == DType::kFloat64 ? 1e-12 : 2e-6;
    const double of_sums = exact * (1 + static_cast<double>(in.shape.count()) / 4);
    const double rounding = 2 * tolerance_of(in.types.x);
    near(in, "mean", got.mean, expected.mean, exact);
    near(in, "m2", got.m2, expected.m2, 20 * exact);
    near(in, "y", got.y, expected.y, std::max(rounding, 10 * exact));
    near(in, "sum_dy", got.sum_dy, expected.sum_dy, of_sums);
    near(in, "sum_dy_xmu", got.sum_dy_xmu, expected.sum_dy_xmu, 4 * of_sums);
    // One over eps: a channel of few numbers may have no variance.
    near(in, "dx", got.dx, expected.dx, std::max(2 * rounding, 500 * exact));
    if (in.how.residual) near(in, "dresidual", got.dresidual, expected.dresidual, 0);
  }

  static void near(const Inputs& in, const char* what, const Array& got, const Array& expected,
                   double tolerance) {
    for (std::int64_t i = 0; i < got.count(); ++i) {
      if (std::abs(got[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i]))) continue;
      ASSERT_NEAR(got[i], expected[i], tolerance * (1 + std::abs(expected[i])))
          << what << ' ' << i << ", shape " << in.shape.samples << 'x' << in.shape.channels << 'x'
          << in.shape.places << ", types " << name_of(in.types.x) << ' '
          << name_of(in.types.others);
    }
  }

  // The moments of floats on the device.
  std::pair<Array, Array> moments_of(const Array& x, const BatchShape& shape) {
    const DeviceArray on_device(x);
    const DeviceArray mean(Array(DType::kFloat64, shape.channels));
    const DeviceArray m2(Array(DType::kFloat64, shape.channels));
    const DeviceArray scratch(Array(DType::kFloat64, cuda().batch_scratch(&shape, 0)));
    const Rows rows{on_device.data(), x.dtype()};
    const Moments moments{static_cast<double*>(mean.data()), static_cast<double*>(m2.data())};
    expect(cuda().batch_moments(&rows, &shape, &moments, static_cast<double*>(scratch.data()), 0,
                                nullptr));
    return {mean.read(), m2.read()};
  }
};

TEST_F(CudaBatchNorms, AgreeWithTheCpuForAllTypesShapesAndOptions) {
  for (const Types& types : kTypes) {
    for (const BatchShape& shape : kShapes) {
      for (const How& how : kHows) {
        // The emulation takes its time: every option with one type, the most of them with others.
        if (types.x != DType::kFloat32 && !how.residual) continue;
        compare({types, shape, how});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaBatchNorms, TakeBatchesThatAreNotAligned) {
  for (const Types& types : kTypes) {
    compare({types, {70, 16, 1}, kHows[2]}, 1);
    compare({types, {3, 4, 64}, kHows[2]}, 1);
    if (HasFatalFailure()) return;
  }
}

// A mean of 10^4 and a deviation of about 1: float has 10^-3 there, and loses none of it.
TEST_F(CudaBatchNorms, AreAsExactFarFromZero) {
  for (const BatchShape& shape :
       {BatchShape{64, 33, 1}, BatchShape{3000, 8, 1}, BatchShape{8, 3, 4096}}) {
    const Array x = Array::random(DType::kFloat32, elements_of(shape), 7, 1e4 - 2, 1e4 + 2);
    const auto [got_mean, got_m2] = moments_of(x, shape);
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      const auto place = [&](std::int64_t i) {
        return (i / shape.places * shape.channels + c) * shape.places + i % shape.places;
      };
      double mean = 0;
      double m2 = 0;
      for (std::int64_t i = 0; i < shape.count(); ++i) mean += x[place(i)] - 1e4;
      mean = 1e4 + mean / static_cast<double>(shape.count());
      for (std::int64_t i = 0; i < shape.count(); ++i) {
        m2 += (x[place(i)] - mean) * (x[place(i)] - mean);
      }
      ASSERT_NEAR(got_mean[c], mean, 1e-6);
      ASSERT_NEAR(got_m2[c] / m2, 1, 1e-6);
    }
    compare({kTypes[0], shape, kHows[0], 1e4});
  }
}

TEST_F(CudaBatchNorms, ASingleOutlierDoesNotSpoilTheOthers) {
  for (const BatchShape& shape : {BatchShape{1, 1, 4096}, BatchShape{4096, 1, 1}}) {
    Array x = Array::random(DType::kFloat32, 4096, 3);
    x.set(0, 1e3);
    double expected = 0;
    for (const double value : x.values()) expected += value / 4096;
    EXPECT_NEAR(moments_of(x, shape).first[0], expected, 1e-4);
  }
}

TEST_F(CudaBatchNorms, NanAndInfinityStayInTheirChannel) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const BatchShape& shape : {BatchShape{40, 20, 1}, BatchShape{2, 20, 21}}) {
      Inputs in(kTypes[0], shape, kHows[1]);
      in.x.set(3 * shape.places, bad);
      const Outcome got = on_device(in, 0);
      EXPECT_TRUE(std::isnan(got.y[3 * shape.places]));
      EXPECT_FALSE(std::isnan(got.y[4 * shape.places]));
      EXPECT_TRUE(std::isnan(got.dx[3 * shape.places]));
      EXPECT_FALSE(std::isnan(got.dx[4 * shape.places]));
    }
  }
}

TEST_F(CudaBatchNorms, MergingRanksGivesTheMomentsOfTheWhole) {
  constexpr std::int64_t kChannels = 19;
  constexpr std::int64_t kStride = 2 * kChannels + 2;
  const std::vector<std::int64_t> counts{0, 5, 0, 1, 400, 7};
  Array gathered(DType::kFloat64, static_cast<std::int64_t>(counts.size()) * kStride);
  std::vector<Array> parts;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    const BatchShape shape{counts[r], kChannels, 1};
    parts.push_back(
        Array::random(DType::kFloat64, elements_of(shape), static_cast<unsigned>(r), 999, 1001));
    const auto [mean, m2] = moments_of(parts.back(), shape);
    const auto row = static_cast<std::int64_t>(r) * kStride;
    for (std::int64_t c = 0; c < kChannels; ++c) {
      gathered.set(row + c, mean[c]);
      gathered.set(row + kChannels + c, m2[c]);
    }
    gathered.set(row + 2 * kChannels, static_cast<double>(counts[r]));
    gathered.set(row + 2 * kChannels + 1, 77);  // not looked at
  }
  const DeviceArray of_ranks(gathered);
  const DeviceArray mean(Array(DType::kFloat64, kChannels));
  const DeviceArray m2(Array(DType::kFloat64, kChannels));
  const Moments moments{static_cast<double*>(mean.data()), static_cast<double*>(m2.data())};
  expect(cuda().batch_merge(static_cast<const double*>(of_ranks.data()),
                            static_cast<std::int64_t>(counts.size()), kStride, kChannels, &moments,
                            0, nullptr));
  for (std::int64_t c = 0; c < kChannels; ++c) {
    double sum = 0;
    double squares = 0;
    double count = 0;
    const auto over_all = [&](const auto& visit) {
      for (const Array& part : parts) {
        for (std::int64_t i = c; i < part.count(); i += kChannels) visit(part[i]);
      }
    };
    over_all([&](double x) { sum += x, ++count; });
    over_all([&](double x) { squares += (x - sum / count) * (x - sum / count); });
    ASSERT_NEAR(mean.read()[c], sum / count, 1e-10);
    ASSERT_NEAR(m2.read()[c], squares, 1e-8);
  }
}

}  // namespace
}  // namespace mezzo::kernels::cuda
