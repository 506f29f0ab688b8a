// Magnitudes of tensors, by the host's loop and by operators of a device, against plain loops over
// doubles.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/scalar_type.h"
#include "insight/tally.h"

namespace mezzo::insight {
namespace {

/// Value by value, in double.
Tally plain_tally(const at::Tensor& tensor, const DTypeRow& type) {
  const at::Tensor values = tensor.to(at::kDouble).contiguous().reshape({-1});
  Tally tally;
  tally.count = values.numel();
  for (std::int64_t i = 0; i < tally.count; ++i) {
    const double value = std::fabs(values.const_data_ptr<double>()[i]);
    if (std::isnan(value)) {
      ++tally.nans;
      continue;
    }
    if (value >= type.largest) ++tally.saturated;
    if (std::isinf(value)) continue;
    if (value == 0) {
      ++tally.zeros;
      continue;
    }
    tally.squares += value * value;
    tally.largest = std::max(tally.largest, value);
    tally.smallest = std::min(tally.smallest, value);
    if (value < type.smallest_normal) ++tally.subnormals;
    const int exponent =
        std::clamp(static_cast<int>(std::floor(std::log2(value))), Tally::kLowest, Tally::kHighest);
    ++tally.exponents[static_cast<std::size_t>(exponent - Tally::kLowest)];
  }
  return tally;
}

void expect_same(const Tally& tally, const Tally& expected, const std::string& which) {
  EXPECT_EQ(tally.count, expected.count) << which;
  EXPECT_NEAR(tally.squares, expected.squares, 1e-10 * expected.squares) << which;
  EXPECT_EQ(tally.largest, expected.largest) << which;
  EXPECT_EQ(tally.smallest, expected.smallest) << which;
  EXPECT_EQ(tally.zeros, expected.zeros) << which;
  EXPECT_EQ(tally.subnormals, expected.subnormals) << which;
  EXPECT_EQ(tally.saturated, expected.saturated) << which;
  EXPECT_EQ(tally.nans, expected.nans) << which;
  EXPECT_EQ(tally.exponents, expected.exponents) << which;
}

/// Magnitudes over the whole range of a type, with zeros and what is not finite.
at::Tensor spread(at::IntArrayRef sizes, at::ScalarType dtype) {
  const double range = dtype == at::kHalf ? 24 : 130;
  const at::Tensor exponents = (torch::rand(sizes, at::kDouble) * 2 - 1) * range;
  at::Tensor values = (torch::rand(sizes, at::kDouble) + 1) * torch::pow(2.0, exponents);
  values = torch::where(torch::rand(sizes) < 0.1, torch::zeros({}, at::kDouble), values);
  at::Tensor narrow = values.to(dtype);
  if (narrow.numel() > 2) {
    narrow.view({-1})[1] = std::numeric_limits<double>::quiet_NaN();
    narrow.view({-1})[2] = -std::numeric_limits<double>::infinity();
  }
  return narrow;
}

TEST(Tally, AgreesWithPlainLoopsOverDoubles) {
  torch::manual_seed(1);
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    for (const at::ScalarType range : {dtype, dtype == at::kDouble ? at::kDouble : at::kHalf}) {
      const DTypeRow& row = *row_of(range);
      for (const std::int64_t size : {0, 1, 7, 1000, 140001}) {
        const at::Tensor values = spread({size}, dtype);
        const std::string which = std::string(c10::toString(dtype)) + " in " +
                                  std::string(row.name) + " of " + std::to_string(size);
        const Tally expected = plain_tally(values, row);
        expect_same(tally_on_host(values, row), expected, which);
        expect_same(read_tally(tally_on_device(values, row)), expected, which + " by operators");
      }
    }
  }
}

TEST(Tally, LooksAtViewsSparseAndComplexTensorsByTheirValues) {
  const DTypeRow& row = row_of(DType::kFloat32);
  const at::Tensor grid = torch::arange(24, at::kFloat).view({4, 6});
  expect_same(tally_on_host(grid.t(), row), plain_tally(grid, row), "transposed");
  expect_same(tally_on_host(grid.slice(1, 1, 3), row), plain_tally(grid.slice(1, 1, 3), row),
              "columns");
  const at::Tensor rows = torch::embedding_sparse_backward(
      torch::ones({2, 3}), torch::tensor({1, 4}), /*num_weights=*/9, -1, false);
  EXPECT_EQ(tally_on_host(rows, row).count, 6);
  const at::Tensor complex = torch::complex(torch::tensor({3.0F}), torch::tensor({-4.0F}));
  EXPECT_EQ(tally_on_host(complex, row).squares, 25);
}

TEST(Tally, AddsUpToSharesOfTheWhole) {
  const DTypeRow& half = row_of(DType::kFloat16);
  Tally all = tally_on_host(torch::tensor({0.0F, 1.0F, 1e-6F, 65504.0F}), half);
  all.add(tally_on_host(torch::tensor({0.0F, 2.0F, 1e6F, NAN}), half));
  const report::Magnitudes m = all.magnitudes(half);
  EXPECT_EQ(m.type, "float16");
  EXPECT_EQ(m.count, 8);
  EXPECT_EQ(m.zeros, 0.25);
  EXPECT_EQ(m.subnormals, 0.125);
  EXPECT_EQ(m.saturated, 0.25);
  EXPECT_EQ(m.nans, 0.125);
  EXPECT_EQ(m.largest, 1e6);
  EXPECT_EQ(m.smallest, static_cast<double>(1e-6F));
  EXPECT_EQ(m.first_exponent, -20);
  ASSERT_EQ(m.exponents.size(), 40U);  // to 2^19 = 524288
  EXPECT_EQ(m.exponents[20], 1);       // 1
  EXPECT_EQ(m.exponents[21], 1);       // 2
}

}  // namespace
}  // namespace mezzo::insight
