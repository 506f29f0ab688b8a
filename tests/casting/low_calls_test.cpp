// Calls that fail in LibTorch's own 16-bit code: operators of one type, without a 16-bit kernel, of
// sparse matrices, and tensors made inside of a low network.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "casting/scope.h"
#include "mezzo/hardware.h"

namespace mezzo::casting {
namespace {

struct LowCallSetting {
  at::ScalarType low;
  ComputeMode computed;
  Mode mode;
};

class LowCalls : public testing::TestWithParam<LowCallSetting> {
 protected:
  void SetUp() override { set_compute_mode(low(), GetParam().computed); }
  void TearDown() override { set_compute_mode(low(), ComputeMode::kAuto); }
  static at::ScalarType low() { return GetParam().low; }
  static bool in_model() { return GetParam().mode == Mode::kWholeModel; }

  template <typename F>
  static at::Tensor inside(F work) {
    const Scope scope(Policy::defaults(low()), GetParam().mode);
    return work();
  }
};

const auto kSettings =
    testing::Values(LowCallSetting{at::kHalf, ComputeMode::kNative, Mode::kOperators},
                    LowCallSetting{at::kHalf, ComputeMode::kEmulated, Mode::kOperators},
                    LowCallSetting{at::kBFloat16, ComputeMode::kNative, Mode::kOperators},
                    LowCallSetting{at::kBFloat16, ComputeMode::kEmulated, Mode::kOperators},
                    LowCallSetting{at::kHalf, ComputeMode::kNative, Mode::kWholeModel},
                    LowCallSetting{at::kHalf, ComputeMode::kEmulated, Mode::kWholeModel},
                    LowCallSetting{at::kBFloat16, ComputeMode::kNative, Mode::kWholeModel},
                    LowCallSetting{at::kBFloat16, ComputeMode::kEmulated, Mode::kWholeModel});
INSTANTIATE_TEST_SUITE_P(Casting, LowCalls, kSettings);

TEST_P(LowCalls, InPlaceOperatorsKeepTheFirstTypeWhateverTheOthersHave) {
  const at::Tensor index = torch::tensor({0, 1, 1, 0}, at::kLong);
  const at::Tensor mask = torch::tensor({true, false, true, true});
  const std::vector<std::pair<const char*, std::function<void(at::Tensor&, const at::Tensor&)>>>
      families{
          {"scatter_reduce_",
           [&](at::Tensor& x, const at::Tensor& y) { x.scatter_reduce_(0, index, y, "mean"); }},
          {"scatter_", [&](at::Tensor& x, const at::Tensor& y) { x.scatter_(0, index, y); }},
          {"scatter_add_",
           [&](at::Tensor& x, const at::Tensor& y) { x.scatter_add_(0, index, y); }},
          {"lerp_", [&](at::Tensor& x, const at::Tensor& y) { x.lerp_(y, 0.25); }},
          {"lerp_ tensor", [&](at::Tensor& x, const at::Tensor& y) { x.lerp_(y, y); }},
          {"masked_scatter_",
           [&](at::Tensor& x, const at::Tensor& y) { x.masked_scatter_(mask, y); }},
          {"put_", [&](at::Tensor& x, const at::Tensor& y) { x.put_(index, y, true); }},
          {"index_reduce_",
           [&](at::Tensor& x, const at::Tensor& y) { x.index_reduce_(0, index, y, "prod"); }},
          {"index_add_", [&](at::Tensor& x, const at::Tensor& y) { x.index_add_(0, index, y); }},
          {"index_copy_", [&](at::Tensor& x, const at::Tensor& y) { x.index_copy_(0, index, y); }},
          {"index_put_",
           [&](at::Tensor& x, const at::Tensor& y) { x.index_put_({index}, y, true); }},
          {"addcmul_", [&](at::Tensor& x, const at::Tensor& y) { x.addcmul_(y, y); }},
      };
  for (const auto& [name, write] : families) {
    for (const bool first_low : {true, false}) {
      const at::Tensor values = torch::tensor({0.5F, 0.25F, 1.0F, 0.75F});
      at::Tensor x = values.to(first_low ? low() : at::kFloat);
      const at::Tensor y = (values * 0.5).to(first_low ? at::kFloat : low()).requires_grad_();
      at::Tensor expected = values.clone();
      write(expected, values * 0.5);
      const at::Tensor got = inside([&] {
        write(x, y);
        return x;
      });
      EXPECT_EQ(got.scalar_type(), first_low ? low() : at::kFloat) << name;
      EXPECT_TRUE(at::allclose(got.to(at::kFloat), expected, 1e-2, 1e-3)) << name;
      EXPECT_EQ(torch::autograd::grad({got.sum()}, {y})[0].scalar_type(), y.scalar_type()) << name;
    }
  }
}

TEST_P(LowCalls, OutOfPlaceOperatorsOfOneTypePromote) {
  const at::Tensor index = torch::tensor({0, 1, 1, 0}, at::kLong);
  const at::Tensor mask = torch::tensor({true, false, true, true});
  const std::vector<
      std::pair<const char*, std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>>>
      families{
          {"lerp",
           [](const at::Tensor& x, const at::Tensor& y) { return torch::lerp(x, y, 0.25); }},
          {"heaviside",
           [](const at::Tensor& x, const at::Tensor& y) { return torch::heaviside(x, y); }},
          {"meshgrid",
           [](const at::Tensor& x, const at::Tensor& y) {
             return torch::meshgrid({x, y}, "ij")[0];
           }},
          {"complex",
           [](const at::Tensor& x, const at::Tensor& y) { return at::real(torch::complex(x, y)); }},
          {"scatter_reduce",
           [&](const at::Tensor& x, const at::Tensor& y) {
             return x.scatter_reduce(0, index, y, "amax");
           }},
          {"masked_scatter",
           [&](const at::Tensor& x, const at::Tensor& y) { return x.masked_scatter(mask, y); }},
          {"index_reduce",
           [&](const at::Tensor& x, const at::Tensor& y) {
             return x.index_reduce(0, index, y, "prod");
           }},
          {"put", [&](const at::Tensor& x, const at::Tensor& y) { return x.put(index, y); }},
          {"isclose", [](const at::Tensor& x,
                         const at::Tensor& y) { return torch::isclose(x, y).to(at::kFloat); }},
          {"inner", [](const at::Tensor& x, const at::Tensor& y) { return torch::inner(x, y); }},
      };
  for (const auto& [name, combine] : families) {
    for (const bool first_low : {true, false}) {
      const at::Tensor values = torch::tensor({0.5F, 0.25F, 1.0F, 0.75F});
      const at::Tensor x = values.to(first_low ? low() : at::kFloat);
      const at::Tensor y = (values * 0.5).to(first_low ? at::kFloat : low());
      const at::Tensor got = inside([&] { return combine(x, y); });
      EXPECT_EQ(got.scalar_type(), at::kFloat) << name;
      EXPECT_TRUE(at::allclose(got, combine(values, values * 0.5), 1e-5, 1e-6)) << name;
    }
  }
}

TEST_P(LowCalls, EmbeddingBagsTakeWeightsOfASumOfAnyType) {
  const at::Tensor table = torch::rand({5, 3}, in_model() ? low() : at::kFloat).requires_grad_();
  const at::Tensor indices = torch::tensor({0, 2, 1, 1}, at::kLong);
  const at::Tensor offsets = torch::tensor({0, 2}, at::kLong);
  for (const at::ScalarType type : {low(), at::kFloat}) {
    const at::Tensor factors = torch::rand({4}).to(type).requires_grad_();
    const auto bags = [&](const at::Tensor& rows, const at::Tensor& weights) {
      return std::get<0>(torch::embedding_bag(rows, indices, offsets, false, 0, false, weights));
    };
    const at::Tensor got = inside([&] { return bags(table, factors); });
    const std::vector<at::Tensor> gradients = torch::autograd::grad({got.sum()}, {table, factors});
    const at::Tensor wide_table = table.detach().to(at::kDouble).requires_grad_();
    const at::Tensor wide_factors = factors.detach().to(at::kDouble).requires_grad_();
    const at::Tensor expected = bags(wide_table, wide_factors);
    const std::vector<at::Tensor> wide =
        torch::autograd::grad({expected.sum()}, {wide_table, wide_factors});
    // Rows and weights are rounded once each, products and sums of at most three once more.
    const double bound = low() == at::kHalf ? 4.0 / 1024 : 4.0 / 128;
    EXPECT_TRUE(at::allclose(got.to(at::kDouble), expected, bound, 0)) << got << expected;
    EXPECT_TRUE(at::allclose(gradients[0].to(at::kDouble), wide[0], bound, 0)) << gradients[0];
    EXPECT_TRUE(at::allclose(gradients[1].to(at::kDouble), wide[1], bound, 0)) << gradients[1];
  }
}

TEST_P(LowCalls, TheGradientOfAnAngleHasThePrecisionOfItsType) {
  const at::Tensor y = torch::tensor({0.3F, 1.7F, 0.01F}).to(low()).requires_grad_();
  const at::Tensor x = torch::tensor({0.7F, 0.123F, 3.3F}).requires_grad_();
  const at::Tensor got = inside([&] { return torch::atan2(y, x); });
  const at::Tensor wide_y = y.detach().to(at::kDouble);
  const at::Tensor wide_x = x.detach().to(at::kDouble).requires_grad_();
  const at::Tensor expected =
      torch::autograd::grad({torch::atan2(wide_y, wide_x).sum()}, {wide_x})[0];
  const at::Tensor gradient = torch::autograd::grad({got.sum()}, {x})[0];
  EXPECT_TRUE(at::allclose(gradient.to(at::kDouble), expected, 1e-6, 0)) << gradient << expected;
}

TEST_P(LowCalls, OperatorsWithoutALowKernelRunInFloat) {
  const at::Tensor matrix = (torch::rand({3, 3}) * 0.2 + torch::eye(3)).to(low());
  const at::Tensor vector = torch::rand({4}).to(low());
  const std::vector<std::pair<const char*, std::function<at::Tensor()>>> families{
      {"linalg_norm 2", [&] { return torch::linalg_norm(matrix, 2); }},
      {"linalg_norm -2", [&] { return torch::linalg_norm(matrix, -2); }},
      {"linalg_norm nuc", [&] { return torch::linalg_norm(matrix, "nuc"); }},
      {"linalg_matrix_norm", [&] { return torch::linalg_matrix_norm(matrix, 2); }},
      {"linalg_lu_factor", [&] { return std::get<0>(torch::linalg_lu_factor(matrix)); }},
      {"linalg_vander", [&] { return torch::linalg_vander(vector); }},
      {"linalg_inv", [&] { return torch::linalg_inv(matrix); }},
      {"det", [&] { return torch::det(matrix); }},
      {"logdet", [&] { return torch::logdet(matrix); }},
      {"special_i1", [&] { return torch::special_i1(vector); }},
      {"special_erfcx", [&] { return torch::special_erfcx(vector); }},
      {"special_bessel_j0", [&] { return torch::special_bessel_j0(vector); }},
      {"special_zeta", [&] { return torch::special_zeta(vector + 2, vector); }},
      {"binomial", [&] { return torch::binomial(vector + 3, vector); }},
      {"_standard_gamma", [&] { return torch::_standard_gamma(vector); }},
      {"rrelu", [&] { return torch::rrelu(vector, 0.1, 0.3, true); }},
      {"cdist", [&] { return torch::cdist(matrix, matrix); }},
      {"quantile", [&] { return torch::quantile(vector, 0.5); }},
  };
  for (const auto& [name, compute] : families) {
    const at::Tensor got = inside(compute);
    EXPECT_EQ(got.scalar_type(), in_model() ? low() : at::kFloat) << name;
    EXPECT_TRUE(got.to(at::kFloat).isfinite().all().item<bool>()) << name;
  }
}

TEST_P(LowCalls, InPlaceAndOutFormsWithoutALowKernelWriteThroughFloat) {
  const at::Tensor matrix = (torch::rand({3, 3}) * 0.2 + torch::eye(3)).to(low());
  at::Tensor out = torch::empty({0}, low());
  inside([&] { return at::linalg_inv_out(out, matrix); });
  EXPECT_EQ(out.scalar_type(), low());
  EXPECT_TRUE(at::allclose(out.to(at::kFloat), at::linalg_inv(matrix.to(at::kFloat)), 2e-2, 1e-2));
  at::Tensor slopes = torch::tensor({-1.0F, 2.0F}).to(low());
  const at::Tensor returned = inside([&] { return torch::rrelu_(slopes, 0.25, 0.25, true); });
  EXPECT_TRUE(returned.is_same(slopes));
  EXPECT_EQ(slopes[0].item<float>(), -0.25F);
}

at::Tensor adjacency(at::Layout layout) {
  const at::Tensor dense =
      torch::tensor({0.5F, 0.0F, 0.25F, 0.0F, 0.0F, 0.75F, 1.0F, 0.0F, 0.5F}).reshape({3, 3});
  return layout == at::kSparse ? dense.to_sparse() : dense.to_sparse(layout);
}

TEST_P(LowCalls, ProductsWithSparseMatricesTrain) {
  for (const at::Layout layout : {at::kSparse, at::kSparseCsr, at::kSparseCsc}) {
    const at::Tensor sparse = adjacency(layout);
    const at::Tensor nodes = torch::rand({3, 4}).to(low()).requires_grad_();
    const at::Tensor got = inside([&] { return torch::mm(sparse, nodes); });
    const at::Tensor wide = nodes.detach().to(at::kFloat).requires_grad_();
    const at::Tensor expected = torch::mm(sparse.to_dense(), wide);
    EXPECT_EQ(got.scalar_type(), in_model() ? low() : at::kFloat);
    EXPECT_TRUE(at::allclose(got.to(at::kFloat), expected, 1e-2, 1e-3));
    const at::Tensor gradient = torch::autograd::grad({got.sum()}, {nodes})[0];
    EXPECT_EQ(gradient.scalar_type(), low());
    const at::Tensor wanted = torch::autograd::grad({expected.sum()}, {wide})[0];
    EXPECT_TRUE(at::allclose(gradient.to(at::kFloat), wanted, 1e-2, 1e-3));
  }
}

TEST_P(LowCalls, TheFamilyOfSparseProductsTakesLowOperands) {
  const at::Tensor sparse = adjacency(at::kSparse);
  const at::Tensor rows = adjacency(at::kSparseCsr);
  const at::Tensor dense = torch::rand({3, 4}).to(low());
  const at::Tensor square = torch::rand({3, 3}).to(low());
  const std::vector<std::pair<const char*, std::function<at::Tensor()>>> families{
      {"matmul", [&] { return torch::matmul(sparse, dense); }},
      {"sparse.mm", [&] { return torch::_sparse_mm(sparse, dense); }},
      {"smm", [&] { return torch::smm(sparse, dense); }},
      {"hspmm", [&] { return torch::hspmm(sparse, dense); }},
      {"addmm", [&] { return torch::addmm(dense, sparse, dense); }},
      {"mv", [&] { return torch::mv(sparse, dense.select(1, 0)); }},
      {"sspaddmm", [&] { return torch::sspaddmm(sparse, sparse, square); }},
      {"sampled_addmm",
       [&] { return torch::sparse_sampled_addmm(rows, dense, dense.t().contiguous()); }},
      {"softmax", [&] { return torch::_sparse_softmax(sparse.to(low()), 1); }},
      {"log_softmax", [&] { return torch::_sparse_log_softmax(sparse.to(low()), 1); }},
  };
  for (const auto& [name, compute] : families) {
    EXPECT_NO_THROW({
      const at::Tensor got = inside(compute);
      EXPECT_TRUE(got.to_dense().to(at::kFloat).isfinite().all().item<bool>()) << name;
    }) << name;
  }
}

TEST_P(LowCalls, FormsThatAreNamedByWhatTheyWriteFollowTheirOperators) {
  const at::Tensor square = (torch::rand({3, 3}) + 3 * torch::eye(3)).to(low());
  at::Tensor u = torch::empty({0}, low());
  at::Tensor s = torch::empty({0}, low());
  at::Tensor v = torch::empty({0}, low());
  inside([&] { return std::get<1>(torch::linalg_svd_out(u, s, v, square, false)); });
  const at::Tensor expected = torch::linalg_svdvals(square.to(at::kDouble));
  const double digit = low() == at::kHalf ? 0x1p-10 : 0x1p-7;
  EXPECT_EQ(s.scalar_type(), low());
  EXPECT_TRUE(torch::allclose(s.to(at::kDouble), expected, digit));
  EXPECT_TRUE(
      torch::allclose((u * s).mm(v).to(at::kDouble), square.to(at::kDouble), 8 * digit, 8 * digit));
  at::Tensor inverse = torch::empty({0}, low());
  at::Tensor info = torch::empty({0}, at::kInt);
  inside([&] { return std::get<0>(torch::linalg_inv_ex_out(inverse, info, square)); });
  EXPECT_TRUE(torch::allclose(inverse.to(at::kDouble), torch::linalg_inv(square.to(at::kDouble)),
                              4 * digit, digit));
}

// The gradient of a low sparse result may be dense or sparse.
TEST_P(LowCalls, SampledProductsOfLowTensorsHaveGradients) {
  const at::Tensor pattern = adjacency(at::kSparseCsr);
  const auto run = [&](at::ScalarType type, bool scoped) {
    const at::Tensor left = torch::ones({pattern.size(0), 4}, type) * 0.5;
    const at::Tensor right = torch::ones({4, pattern.size(1)}, type) * 0.25;
    left.requires_grad_();
    right.requires_grad_();
    const at::Tensor own = pattern.to(type);
    const auto product = [&] { return torch::sparse_sampled_addmm(own, left, right); };
    const at::Tensor got = scoped ? inside(product) : product();
    EXPECT_TRUE(got.is_sparse_csr());
    const auto gradients =
        torch::autograd::grad({got}, {left, right}, {torch::ones(got.sizes(), got.scalar_type())});
    return std::tuple(got.to_dense().to(at::kDouble), gradients[0].to(at::kDouble),
                      gradients[1].to(at::kDouble));
  };
  const auto [value, of_left, of_right] = run(low(), true);
  const auto [wide_value, wide_left, wide_right] = run(at::kDouble, false);
  const double digit = low() == at::kHalf ? 0x1p-9 : 0x1p-6;
  EXPECT_TRUE(torch::allclose(value, wide_value, digit, digit));
  EXPECT_TRUE(torch::allclose(of_left, wide_left, digit, digit));
  EXPECT_TRUE(torch::allclose(of_right, wide_right, digit, digit));
}

}  // namespace
}  // namespace mezzo::casting
