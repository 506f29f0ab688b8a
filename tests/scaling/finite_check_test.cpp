#include "scaling/finite_check.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <vector>

#include "mezzo/error.h"

namespace mezzo::scaling {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
const std::vector<at::ScalarType> kTypes{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

struct Flag {
  at::Tensor found = torch::zeros({}, at::kFloat);
  bool is_up() const { return found.item<float>() != 0; }
};

at::Tensor inverse_of(double scale) {
  return torch::full({}, 1.0 / scale, at::kFloat);
}

TEST(UnscaleAndCheck, DividesEveryTypeAndSizeLikeADoubleReference) {
  torch::manual_seed(1);
  for (const auto type : kTypes) {
    for (const std::int64_t size : {0, 1, 7, 64, 70001}) {
      const at::Tensor values = torch::randn({size}, at::kDouble).to(type);
      at::Tensor tensor = values * 1024;
      const at::Tensor expected = tensor.to(at::kDouble) / 1024;
      Flag flag;
      unscale_and_check(tensor, inverse_of(1024), flag.found);
      EXPECT_TRUE(torch::equal(tensor.to(at::kDouble), expected)) << type << " " << size;
      EXPECT_FALSE(flag.is_up()) << type << " " << size;
    }
  }
}

TEST(UnscaleAndCheck, RaisesTheFlagForAnyNonFiniteValueAnywhere) {
  for (const auto type : kTypes) {
    for (const float bad : {kInf, -kInf, kNaN}) {
      for (const std::int64_t place : {0, 63, 70000}) {
        at::Tensor tensor = torch::ones({70001}, type);
        tensor[place] = bad;
        Flag flag;
        unscale_and_check({torch::ones({3}, type), tensor}, inverse_of(8), flag.found);
        EXPECT_TRUE(flag.is_up()) << type << " " << bad << " at " << place;
      }
    }
  }
}

TEST(UnscaleAndCheck, MixesTypesAndLayoutsInOneList) {
  const at::Tensor strided = torch::full({6, 4}, 8.0F).t();
  const at::Tensor slice = torch::full({4, 9}, 8.0, at::kHalf).slice(1, 1, 8, 3);
  const at::Tensor channels = torch::full({2, 3, 4, 5}, 8.0F).to(at::MemoryFormat::ChannelsLast);
  const at::Tensor number = torch::full({}, 8.0, at::kBFloat16);
  const at::Tensor complex = torch::full({3}, 8.0, at::kFloat).to(at::kComplexFloat);
  Flag flag;
  unscale_and_check({strided, slice, at::Tensor(), channels, number, complex}, inverse_of(8),
                    flag.found);
  EXPECT_FALSE(flag.is_up());
  for (const at::Tensor& tensor : {strided, slice, channels, number, complex}) {
    EXPECT_TRUE(tensor.eq(1).all().item<bool>()) << tensor.options();
  }
}

TEST(UnscaleAndCheck, LeavesValuesAloneForAScaleOfOneButChecks) {
  at::Tensor tensor = torch::tensor({1.0F, 3e-45F, kInf});
  const at::Tensor before = tensor.clone();
  Flag flag;
  unscale_and_check(tensor, inverse_of(1), flag.found);
  EXPECT_TRUE(torch::equal(tensor, before));
  EXPECT_TRUE(flag.is_up());
}

TEST(UnscaleAndCheck, DividesDoublesByAllOfADoubleInverse) {
  const at::Tensor inverse = torch::full({}, 1 / 1000.1, at::kDouble);
  for (const float bad : {1.0F, kNaN}) {
    const at::Tensor doubles = torch::tensor({1000.1, 3e-3}, at::kDouble);
    const at::Tensor floats = torch::tensor({1000.1F, bad});
    const at::Tensor complex = torch::full({2}, 1000.1, at::kComplexDouble);
    Flag flag;
    unscale_and_check({floats, doubles, complex}, inverse, flag.found);
    EXPECT_TRUE(
        torch::allclose(doubles, torch::tensor({1.0, 3e-3 / 1000.1}, at::kDouble), 1e-15, 0));
    EXPECT_TRUE(torch::allclose(at::real(complex), torch::ones({2}, at::kDouble), 1e-15, 0));
    EXPECT_FLOAT_EQ(floats[0].item<float>(), 1.0F);
    EXPECT_EQ(flag.is_up(), bad != 1.0F);
    unscale({doubles, floats}, inverse);
    EXPECT_NEAR(doubles[0].item<double>(), 1 / 1000.1, 1e-18);
  }
  const at::Tensor infinite = torch::tensor({1.0, static_cast<double>(kInf)}, at::kDouble);
  Flag flag;
  unscale_and_check(infinite, inverse, flag.found);
  EXPECT_TRUE(flag.is_up());
}

TEST(UnscaleAndCheck, NeverClearsTheFlag) {
  Flag flag;
  flag.found.fill_(1);
  unscale_and_check(torch::ones({4}), inverse_of(2), flag.found);
  EXPECT_TRUE(flag.is_up());
}

TEST(UnscaleAndCheck, AcceptsAnEmptyListAndUndefinedTensors) {
  Flag flag;
  unscale_and_check({}, inverse_of(2), flag.found);
  unscale_and_check(at::Tensor(), inverse_of(2), flag.found);
  EXPECT_FALSE(flag.is_up());
}

TEST(UnscaleAndCheck, TakesSparseGradientsWithDuplicates) {
  const at::Tensor indices = torch::tensor({{0, 2, 2}});
  const at::Tensor sparse =
      torch::sparse_coo_tensor(indices, torch::tensor({8.0F, 16.0F, 8.0F}), {4});
  Flag flag;
  unscale_and_check(sparse, inverse_of(8), flag.found);
  EXPECT_TRUE(torch::equal(sparse.to_dense(), torch::tensor({1.0F, 0.0F, 3.0F, 0.0F})));
  EXPECT_FALSE(flag.is_up());

  const at::Tensor overflowing = torch::sparse_coo_tensor(
      indices, torch::tensor({1.0F, 60000.0F, 60000.0F}).to(at::kHalf), {4});
  unscale_and_check(overflowing, inverse_of(1), flag.found);
  EXPECT_TRUE(flag.is_up()) << "the sum of duplicates overflows half";
}

TEST(UnscaleAndCheck, AnotherLayoutIsAnErrorBeforeAnythingChanges) {
  const at::Tensor dense = torch::full({2, 2}, 8.0F);
  const at::Tensor first = dense.clone();
  Flag flag;
  EXPECT_THROW(unscale_and_check({first, dense.to_sparse_csr()}, inverse_of(8), flag.found),
               ConfigError);
  EXPECT_THROW(unscale({first, dense.to_sparse_csr()}, inverse_of(8)), ConfigError);
  EXPECT_TRUE(torch::equal(first, dense));
  EXPECT_FALSE(flag.is_up());
}

TEST(UnscaleAndCheck, RecordsNothingForAutograd) {
  at::Tensor leaf = torch::ones({3}, at::TensorOptions().requires_grad(true));
  Flag flag;
  unscale_and_check(leaf, inverse_of(2), flag.found);
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_TRUE(leaf.detach().eq(0.5).all().item<bool>());
}

TEST(Unscale, DividesWithoutLooking) {
  const at::Tensor tensor = torch::tensor({4.0F, kInf});
  unscale({tensor, at::Tensor()}, inverse_of(4));
  EXPECT_TRUE(torch::equal(tensor, torch::tensor({1.0F, kInf})));
}

TEST(CheckFinite, FindsAnyNonFiniteValueAndWritesNothing) {
  for (const auto type : kTypes) {
    for (const std::int64_t size : {1, 7, 64, 70001}) {
      for (const bool dense : {true, false}) {
        const at::Tensor whole = torch::ones({size, 2}, type);
        const at::Tensor tensor = dense ? whole : whole.select(1, 1);
        const auto version = tensor._version();
        Flag flag;
        check_finite({torch::ones({0}, type), at::Tensor(), tensor}, flag.found);
        EXPECT_FALSE(flag.is_up()) << type << size << dense;
        EXPECT_EQ(tensor._version(), version);
        for (const float bad : {kInf, -kInf, kNaN}) {
          for (const std::int64_t place : {std::int64_t{0}, size / 2, size - 1}) {
            const at::Tensor spoilt = tensor.clone();
            spoilt[place] = bad;
            Flag found;
            check_finite({torch::ones({3}, type), spoilt}, found.found);
            EXPECT_TRUE(found.is_up()) << type << size << dense << bad << " at " << place;
          }
        }
      }
    }
  }
}

TEST(CheckFinite, TakesSparseComplexAndLargeDoubleGradients) {
  const at::Tensor indices = torch::tensor({{0, 2, 2}});
  const auto sparse_of = [&](float last, at::ScalarType type) {
    return torch::sparse_coo_tensor(indices, torch::tensor({1.0F, 60000.0F, last}).to(type), {4});
  };
  const auto is_finite = [](const at::Tensor& tensor) {
    Flag flag;
    check_finite(tensor, flag.found);
    return !flag.is_up();
  };
  EXPECT_TRUE(is_finite(sparse_of(1, at::kFloat)));
  EXPECT_FALSE(is_finite(sparse_of(kNaN, at::kFloat)));
  EXPECT_FALSE(is_finite(sparse_of(60000, at::kHalf))) << "the sum of duplicates overflows half";
  EXPECT_TRUE(is_finite(torch::full({3}, 1e300, at::kDouble)));
  EXPECT_FALSE(is_finite(torch::full({3}, kInf).to(at::kComplexFloat)));
  EXPECT_THROW(is_finite(torch::ones({2, 2}).to_sparse_csr()), ConfigError);
}

TEST(FirstNonfinite, FindsItsPlaceOrTheEnd) {
  const at::Tensor good = torch::ones({3});
  const at::Tensor bad = torch::tensor({1.0F, kNaN});
  EXPECT_EQ(first_nonfinite({good, at::Tensor(), bad, bad}), 2U);
  EXPECT_EQ(first_nonfinite({good, good}), 2U);
  EXPECT_EQ(first_nonfinite({}), 0U);
}

}  // namespace
}  // namespace mezzo::scaling
