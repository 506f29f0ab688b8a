// Layer and RMS norm on the device against the CPU's baseline set, over types, row lengths on every
// kernel's path, and addresses.
#include "kernels/norms.h"

#include "kernels/cuda/device.h"

namespace mezzo::kernels::cuda {
namespace {

using namespace testing_support;

const OneWorker kOne;

struct Shape {
  std::int64_t rows, columns;
};
constexpr Shape kShapes[] = {{1, 1},    {3, 17},    {37, 64},   {5, 768}, {3, 1032}, {2, 4096},
                             {2, 4104}, {1, 16384}, {1, 16392}, {5, 131}, {0, 8}};

// Which types: of x, of the residual (and the sum), of weight and bias.
struct Types {
  DType x, residual, weight;
};
constexpr Types kTypes[] = {
    {DType::kFloat32, DType::kFloat32, DType::kFloat32},
    {DType::kFloat16, DType::kFloat16, DType::kFloat16},
    {DType::kBFloat16, DType::kBFloat16, DType::kFloat32},
    {DType::kBFloat16, DType::kFloat32, DType::kFloat32},
    {DType::kFloat16, DType::kFloat32, DType::kBFloat16},
    {DType::kFloat32, DType::kFloat16, DType::kFloat32},  // the sum is float
    {DType::kFloat64, DType::kFloat64, DType::kFloat64},
};

struct Variant {
  bool rms, weight, residual, from_output;
  bool bias = weight && !rms;
};
constexpr Variant kVariants[] = {{false, true, false, false}, {false, false, false, false},
                                 {false, true, true, false},  {false, true, false, true},
                                 {true, true, false, false},  {true, false, true, false},
                                 {true, true, false, true},   {false, false, false, true, true}};

// The memory of both directions of one norm, on one side.
struct Memory {
  void *x, *residual, *weight, *bias, *dy, *dsum, *sum, *y, *dx, *mean, *rstd, *dweight, *dbias;
};

struct Arrays {
  Types types;
  DType stats, of_sum;
  NormShape shape;
  std::vector<Array> all;

  Arrays(Types t, Shape s, const Variant& v)
      : types(t),
        stats(t.x == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32),
        of_sum(t.x == DType::kFloat32 ? t.x : t.residual),
        shape{s.rows, s.columns, 1e-3, v.rms, stats == DType::kFloat64} {
    const std::int64_t n = s.rows * s.columns;
    all.push_back(Array::random(t.x, n, 1));
    all.push_back(Array::random(t.residual, n, 2));
    all.push_back(Array::random(t.weight, s.columns, 3, 0.5, 1.5));
    all.push_back(Array::random(t.weight, s.columns, 4));
    all.push_back(Array::random(t.x, n, 5));
    all.push_back(Array::random(of_sum, n, 6));
    all.emplace_back(of_sum, n);
    all.emplace_back(t.x, n);
    all.emplace_back(v.residual ? of_sum : t.x, n);
    for (const std::int64_t count : {s.rows, s.rows, s.columns, s.columns}) {
      all.emplace_back(stats, count);
    }
  }
};

NormForward forward_of(const Arrays& a, const Memory& m, const Variant& v) {
  NormForward f;
  f.shape = a.shape;
  f.x = {m.x, a.types.x};
  if (v.residual) {
    f.residual = {m.residual, a.types.residual};
    f.sum = {m.sum, a.of_sum};
  }
  if (v.weight) f.weight = {m.weight, a.types.weight};
  if (v.bias) f.bias = {m.bias, a.types.weight};
  f.y = {m.y, a.types.x};
  f.mean = v.rms ? nullptr : m.mean;
  f.rstd = m.rstd;
  return f;
}

NormBackward backward_of(const Arrays& a, const Memory& m, const Variant& v) {
  const NormForward f = forward_of(a, m, v);
  NormBackward b;
  b.shape = a.shape;
  b.dy = {m.dy, a.types.x};
  b.x = v.from_output ? Rows{m.y, a.types.x}
        : v.residual  ? Rows{m.sum, a.of_sum}
                      : Rows{m.x, a.types.x};
  b.from_output = v.from_output;
  b.weight = f.weight;
  b.bias = f.bias;
  b.mean = v.rms || v.from_output ? nullptr : m.mean;
  b.rstd = m.rstd;
  if (v.residual) b.dsum = {m.dsum, a.of_sum};
  b.dx = {m.dx, v.residual ? a.of_sum : a.types.x};
  b.dweight = m.dweight;
  b.dbias = m.dbias;
  return b;
}

template <typename Each>
Memory memory_of(const Each& data) {
  return {data(0), data(1), data(2), data(3),  data(4),  data(5), data(6),
          data(7), data(8), data(9), data(10), data(11), data(12)};
}

class CudaNorms : public OnCuda {
 protected:
  void compare(Types types, Shape shape, const Variant& v, std::int64_t before) {
    Arrays host(types, shape, v);
    std::vector<DeviceArray> device;
    for (const Array& array : host.all) device.emplace_back(array, before);
    const Memory of_host = memory_of([&](std::size_t i) { return host.all[i].data(); });
    const Memory of_device = memory_of([&](std::size_t i) { return device[i].data(); });

    kernels::norm_forward(forward_of(host, of_host, v), kOne);
    const NormBackward host_backward = backward_of(host, of_host, v);
    std::vector<double> scratch(static_cast<std::size_t>(kernels::norm_scratch(host.shape)));
    kernels::norm_backward(host_backward, scratch.data(), kOne);

    const NormForward f = forward_of(host, of_device, v);
    const NormBackward b = backward_of(host, of_device, v);
    const DeviceArray device_scratch(Array(DType::kFloat64, cuda().norm_scratch(&host.shape, 0)));
    expect(cuda().norm_forward(&f, 0, nullptr));
    expect(cuda().norm_backward(&b, device_scratch.data(), 0, nullptr));

    const double rounding = 2 * tolerance_of(types.x);
    const double exact = host.stats == DType::kFloat64 ? 1e-10 : 1e-4;
    // The normalised value is known from the rounded output only, and that may differ.
    const double loose = v.from_output ? 20 * rounding + exact : exact;
    const double tolerances[] = {0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 tolerance_of(host.of_sum),
                                 std::max(rounding, exact),
                                 std::max(10 * rounding, 10 * loose),
                                 exact,
                                 exact,
                                 20 * std::max(loose, v.residual ? rounding : 0),
                                 20 * exact};
    for (std::size_t i = 6; i < host.all.size(); ++i) {
      const Array got = device[i].read();
      for (std::int64_t k = 0; k < got.count(); ++k) {
        const double expected = host.all[i][k];
        ASSERT_NEAR(got[k], expected, tolerances[i] * (1 + std::abs(expected)))
            << "array " << i << " at " << k << " of " << shape.rows << 'x' << shape.columns << ' '
            << name_of(types.x) << ' ' << name_of(types.residual) << " rms " << v.rms
            << " residual " << v.residual << " from output " << v.from_output;
      }
    }
  }
};

TEST_F(CudaNorms, AgreeWithTheCpuForAllTypesAndShapes) {
  for (const Types& types : kTypes) {
    for (const Shape& shape : kShapes) {
      for (const Variant& v : kVariants) {
        if (!v.residual && types.residual != types.x) continue;
        compare(types, shape, v, 0);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaNorms, TakeRowsThatAreNotAligned) {
  for (const Types& types : kTypes) {
    compare(types, {5, 768}, {false, true, true, false}, 1);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaNorms, AFarMeanDoesNotDrownTheVariance) {
  for (const std::int64_t columns : {512, 4096, 513}) {
    Array x(DType::kFloat32, columns - columns % 2);
    for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, 4096 + (i % 2 == 0 ? 1.0 : -1.0));
    const DeviceArray on_device(x);
    const DeviceArray y(Array(DType::kFloat32, x.count()));
    NormForward f;
    f.shape = {1, x.count(), 0, false, false};
    f.x = {on_device.data(), DType::kFloat32};
    f.y = {y.data(), DType::kFloat32};
    expect(cuda().norm_forward(&f, 0, nullptr));
    const Array got = y.read();
    EXPECT_EQ(got[0], 1);
    EXPECT_EQ(got[1], -1);
  }
}

TEST_F(CudaNorms, OfManyRowsAddUpEveryRow) {
  compare(kTypes[0], {600, 24}, kVariants[0], 0);
  compare(kTypes[2], {100, 1040}, kVariants[0], 0);
  compare(kTypes[6], {300, 7}, kVariants[0], 0);
}

}  // namespace
}  // namespace mezzo::kernels::cuda
