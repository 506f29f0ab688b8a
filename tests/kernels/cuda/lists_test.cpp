// Scale, axpby, copies, the finite check, norms and the scale's update on the device, against
// double and the CPU sets.
#include "kernels/cuda/device.h"

namespace mezzo::kernels::cuda {
namespace {

using namespace testing_support;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class CudaLists : public OnCuda {};

TEST_F(CudaLists, TheCheckFindsASingleBadElementWhereverItIs) {
  for (const DType dtype : kFloats) {
    for (const std::int64_t before : {0, 1}) {
      for (const std::int64_t count : kDeviceSizes) {
        Array x = Array::random(dtype, count, 1);
        const Array other = Array::random(dtype, 100, 2);
        for (const double bad : {0.0, kInfinity, -kInfinity, kNaN}) {
          for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
            if (count == 0 && (bad != 0 || at != 0)) continue;
            const double kept = count == 0 ? 0 : x[at];
            if (std::isnan(bad) && size_of(dtype) == 2) {
              static_cast<std::uint16_t*>(x.data())[at] = 0x7fff;
            } else if (count > 0) {
              x.set(at, bad);
            }
            const DeviceArray first(other);
            const DeviceArray on_device(x, before);
            const std::vector<Input> in{first.in(), on_device.in()};
            const DeviceNumber<float> found(0);
            expect(cuda().check(list(), in.data(), 2, found.data(), nullptr));
            ASSERT_EQ(found.value(), bad != 0 ? 1 : 0) << name_of(dtype) << count << ' ' << at;
            if (count > 0) x.set(at, kept);
          }
        }
      }
    }
  }
}

TEST_F(CudaLists, TheCheckNeverClearsTheFlag) {
  const DeviceArray x(Array::random(DType::kFloat32, 10, 1));
  const Input in = x.in();
  const DeviceNumber<float> found(1);
  expect(cuda().check(list(), &in, 1, found.data(), nullptr));
  EXPECT_EQ(found.value(), 1);
  expect(cuda().check(list(), nullptr, 0, found.data(), nullptr));
}

TEST_F(CudaLists, ScaleBetweenAllTypesAgreesWithTheCpu) {
  for (const DType from : kFloats) {
    for (const DType to : kFloats) {
      for (const std::int64_t before : {0, 1}) {
        std::vector<Array> expected;
        std::vector<DeviceArray> in;
        std::vector<DeviceArray> out;
        for (const std::int64_t count : kDeviceSizes) {
          const Array x = Array::random(from, count, 3);
          expected.emplace_back(to, count);
          baseline::kernel_set().scale(x.in(), expected.back().out(), {0, count}, 0.37 * 0.5);
          in.emplace_back(x, before);
          out.emplace_back(Array(to, count), before);
        }
        std::vector<Input> inputs;
        std::vector<Output> outputs;
        for (std::size_t i = 0; i < in.size(); ++i) {
          inputs.push_back(in[i].in());
          outputs.push_back(out[i].out());
        }
        const DeviceNumber<double> half(0.5);
        const DeviceNumber<float> found(0);
        expect(cuda().scale(list(), inputs.data(), outputs.data(),
                            static_cast<std::int64_t>(inputs.size()), 0.37, half.data(),
                            found.data(), nullptr));
        EXPECT_EQ(found.value(), 0);
        for (std::size_t i = 0; i < out.size(); ++i) {
          const Array got = out[i].read();
          for (std::int64_t k = 0; k < got.count(); ++k) {
            ASSERT_NEAR(got[k], expected[i][k], tolerance_of(to == DType::kFloat64 ? from : to));
          }
        }
      }
    }
  }
}

TEST_F(CudaLists, AxpbyAndCopiesAgreeWithTheCpu) {
  for (const DType dtype : kFloats) {
    for (const DType other : kFloats) {
      const Array x = Array::random(dtype, 20001, 4);
      const Array y = Array::random(other, 20001, 5);
      Array sum(dtype, x.count());
      Array copy(other, x.count());
      baseline::kernel_set().axpby(x.in(), y.in(), sum.out(), x.all(), 2, -0.5);
      baseline::kernel_set().copy(x.in(), copy.out(), x.all());
      const DeviceArray device_x(x);
      const DeviceArray device_y(y);
      const DeviceArray device_copy(copy);
      const Input in_x = device_x.in();
      const Input in_y = device_y.in();
      const Output copied = device_copy.out();
      const Output in_place = device_x.out();
      const DeviceNumber<float> found(0);
      expect(cuda().copy(list(), &in_x, &copied, 1, nullptr));
      EXPECT_EQ(device_copy.read(), copy);
      expect(cuda().axpby(list(), &in_x, &in_y, &in_place, 1, 2, -0.5, nullptr, found.data(),
                          nullptr));
      EXPECT_EQ(found.value(), 0);
      const Array got = device_x.read();
      for (std::int64_t k = 0; k < got.count(); ++k) {
        ASSERT_NEAR(got[k], sum[k], 3 * tolerance_of(dtype == DType::kFloat64 ? other : dtype));
      }
    }
  }
}

TEST_F(CudaLists, AxpbyTakesFactorsOfEachTensor) {
  for (const DType dtype : kFloats) {
    std::vector<DeviceArray> x, y;
    std::vector<Array> expected;
    std::vector<Input> in_x, in_y;
    std::vector<Output> out;
    std::vector<double> each;
    for (const std::int64_t count : kDeviceSizes) {
      const Array left = Array::random(dtype, count, 6);
      const Array right = Array::random(DType::kFloat32, count, 7);
      const double number = 0.25 * static_cast<double>(expected.size());
      each.push_back(number);
      expected.emplace_back(dtype, count);
      baseline::kernel_set().axpby(left.in(), right.in(), expected.back().out(), left.all(),
                                   3 * number, 2 * (1 - number));
      x.emplace_back(left);
      y.emplace_back(right);
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      in_x.push_back(x[i].in());
      in_y.push_back(y[i].in());
      out.push_back(x[i].out());
      each.push_back(1 - each[i]);
    }
    const DeviceBytes factors(each.data(), each.size() * sizeof(double));
    expect(cuda().axpby(list(), in_x.data(), in_y.data(), out.data(),
                        static_cast<std::int64_t>(x.size()), 3, 2,
                        static_cast<const double*>(factors.data()), nullptr, nullptr));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Array got = x[i].read();
      for (std::int64_t k = 0; k < got.count(); ++k) {
        ASSERT_NEAR(got[k], expected[i][k], 8 * tolerance_of(dtype)) << name_of(dtype) << i;
      }
    }
  }
}

struct FlagCase {
  DType from, to;
  double value, factor;
  bool finite;
};
constexpr FlagCase kFlagCases[] = {
    {DType::kFloat32, DType::kFloat32, kInfinity, 1, false},
    {DType::kFloat32, DType::kFloat32, kInfinity, 0, false},
    {DType::kFloat32, DType::kFloat16, 65520, 1, false},
    {DType::kFloat32, DType::kFloat16, 65519, 1, true},
    {DType::kFloat32, DType::kBFloat16, 3.4e38, 1, false},
    {DType::kFloat32, DType::kFloat32, 3e38, 2, false},
    {DType::kFloat64, DType::kFloat32, 1e300, 1, false},
    {DType::kFloat64, DType::kFloat64, 1e300, 1, true},
};

TEST_F(CudaLists, ScaleAndAxpbyFlagWhatIsNotFiniteInTheOutputsType) {
  for (const FlagCase& row : kFlagCases) {
    for (const std::int64_t at : {0, 63, 64}) {
      Array x = Array::random(row.from, 65, 4);
      x.set(at, row.value);
      const DeviceArray on_device(x);
      const DeviceArray zero(Array(row.from, 65));
      const DeviceArray result(Array(row.to, 65));
      const Input in = on_device.in();
      const Input zeros = zero.in();
      const Output out = result.out();
      const DeviceNumber<float> by_scale(0);
      const DeviceNumber<float> by_axpby(0);
      expect(cuda().scale(list(), &in, &out, 1, row.factor, nullptr, by_scale.data(), nullptr));
      expect(cuda().axpby(list(), &in, &zeros, &out, 1, row.factor, 1, nullptr, by_axpby.data(),
                          nullptr));
      EXPECT_EQ(by_scale.value(), row.finite ? 0 : 1) << row.value;
      EXPECT_EQ(by_axpby.value(), row.finite ? 0 : 1) << row.value;
    }
  }
}

TEST_F(CudaLists, NormsAgreeWithDouble) {
  for (const bool largest : {false, true}) {
    std::vector<Array> arrays;
    std::vector<DeviceArray> on_device;
    for (const DType dtype : kFloats) {
      for (const std::int64_t count : kDeviceSizes) {
        arrays.push_back(Array::random(dtype, count, 7 + static_cast<unsigned>(arrays.size())));
        on_device.emplace_back(arrays.back(), count % 2);
      }
    }
    std::vector<Input> in;
    for (const DeviceArray& array : on_device) in.push_back(array.in());
    const auto count = static_cast<std::int64_t>(in.size());
    const DeviceNumber<double> total;
    const DeviceArray each(Array(DType::kFloat64, count));
    const DeviceNumber<float> found(0);
    expect(cuda().norm(list(), in.data(), count, largest, total.data(),
                       static_cast<double*>(each.data()), found.data(), nullptr));
    EXPECT_EQ(found.value(), 0);
    const Array norms = each.read();
    double of_all = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      double expected = 0;
      for (const double x : arrays[static_cast<std::size_t>(i)].values()) {
        expected = largest ? std::max(expected, std::abs(x)) : expected + x * x;
      }
      of_all = largest ? std::max(of_all, expected) : of_all + expected;
      if (!largest) expected = std::sqrt(expected);
      EXPECT_NEAR(norms[i], expected, 1e-12 * (1 + expected));
    }
    if (!largest) of_all = std::sqrt(of_all);
    EXPECT_NEAR(total.value(), of_all, 1e-12 * of_all);
  }
}

TEST_F(CudaLists, NormsOfListsWithBadElementsAreNotFiniteAndSetTheFlag) {
  for (const bool largest : {false, true}) {
    for (const double bad : {kInfinity, kNaN}) {
      Array x = Array::random(DType::kFloat32, 20001, 9);
      x.set(12345, bad);
      const DeviceArray on_device(x);
      const Input in = on_device.in();
      const DeviceNumber<double> total;
      const DeviceNumber<float> found(0);
      expect(cuda().norm(list(), &in, 1, largest, total.data(), nullptr, found.data(), nullptr));
      EXPECT_FALSE(std::isfinite(total.value()));
      EXPECT_EQ(found.value(), 1);
    }
  }
  const DeviceNumber<double> total(7);
  expect(cuda().norm(list(), nullptr, 0, false, total.data(), nullptr, nullptr, nullptr));
  EXPECT_EQ(total.value(), 0);
}

TEST_F(CudaLists, TheScaleMovesAsItDoesOnTheCpu) {
  const ScaleRule rule{2, 0.5, 512, 4096, 3, true};
  ScaleNumbers expected{1024, 0, 0};
  const DeviceNumber<float> scale(expected.scale);
  const DeviceNumber<std::int32_t> unskipped(0);
  const DeviceNumber<std::int32_t> stuck(0);
  for (const int overflow : {0, 0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 1}) {
    const DeviceNumber<float> found(static_cast<float>(overflow));
    expected = update_scale(expected, overflow != 0, rule);
    expect(cuda().update_scale(scale.data(), unskipped.data(), stuck.data(), found.data(), &rule, 0,
                               nullptr));
    EXPECT_EQ(scale.value(), expected.scale);
    EXPECT_EQ(unskipped.value(), expected.unskipped);
    EXPECT_EQ(stuck.value(), expected.stuck);
  }
}

TEST_F(CudaLists, ACopyUnderAFlagIsMadeWhereTheFlagIsUp) {
  const Array x = Array::random(DType::kFloat16, 20001, 4);
  const Array before = Array::random(DType::kFloat32, 20001, 5);
  Array copied(DType::kFloat32, x.count());
  baseline::kernel_set().copy(x.in(), copied.out(), x.all());
  const DeviceArray in(x);
  const DeviceArray out(before);
  const Input from = in.in();
  const Output to = out.out();
  const DeviceNumber<float> down(0);
  expect(cuda().copy_if(list(), &from, &to, 1, down.data(), nullptr));
  EXPECT_EQ(out.read(), before);
  const DeviceNumber<float> up(1);
  expect(cuda().copy_if(list(), &from, &to, 1, up.data(), nullptr));
  EXPECT_EQ(out.read(), copied);
}

TEST_F(CudaLists, AListMayGrowShrinkAndChange) {
  for (const std::int64_t tensors : {1, 1500, 2, 300, 300}) {
    const Array x = Array::random(DType::kFloat32, tensors, static_cast<unsigned>(tensors));
    const DeviceArray on_device(x);
    std::vector<Input> in;
    for (std::int64_t i = 0; i < tensors; ++i) {
      in.push_back({static_cast<float*>(on_device.data()) + i, DType::kFloat32, 1});
    }
    const DeviceArray each(Array(DType::kFloat64, tensors));
    expect(cuda().norm(list(), in.data(), tensors, true, nullptr, static_cast<double*>(each.data()),
                       nullptr, nullptr));
    const Array got = each.read();
    for (std::int64_t i = 0; i < tensors; ++i) ASSERT_EQ(got[i], std::abs(x[i])) << tensors;
  }
}

}  // namespace
}  // namespace mezzo::kernels::cuda
