#include <gmock/gmock.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/torch.h>

#include <functional>

#include "mezzo/autocast.h"
#include "mezzo/error.h"
#include "mezzo/hardware.h"
#include "mezzo/nn.h"

namespace mezzo::nn {
namespace {

using Call = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight,
                                      const at::Tensor& bias)>;

struct NormCase {
  const char* name;
  bool rms;
  bool memory_efficient;
};
constexpr NormCase kCases[] = {{"Layer", false, false},
                               {"LayerMemoryEfficient", false, true},
                               {"Rms", true, false},
                               {"RmsMemoryEfficient", true, true}};

constexpr double kEps = 1e-4;

at::Tensor ours(const NormCase& c, const at::Tensor& x, at::IntArrayRef shape,
                const at::Tensor& weight, const at::Tensor& bias) {
  return c.rms ? fused_rms_norm(x, shape, weight, kEps, c.memory_efficient)
               : fused_layer_norm(x, shape, weight, bias, kEps, c.memory_efficient);
}

// The definition, in double and with LibTorch's operators.
at::Tensor reference(const NormCase& c, const at::Tensor& x, at::IntArrayRef shape,
                     const at::Tensor& weight, const at::Tensor& bias) {
  if (!c.rms) return at::layer_norm(x, shape, weight, bias, kEps);
  std::vector<std::int64_t> dims;
  for (std::size_t i = 0; i < shape.size(); ++i) dims.push_back(-1 - static_cast<std::int64_t>(i));
  at::Tensor y = x * (x.pow(2).mean(dims, true) + kEps).rsqrt();
  return weight.defined() ? y * weight : y;
}

at::Tensor leaf(const at::Tensor& values, at::ScalarType type) {
  return values.to(type).detach().requires_grad_(true);
}

double tolerance_of(at::ScalarType type) {
  return type == at::kDouble  ? 1e-11
         : type == at::kFloat ? 5e-5
         : type == at::kHalf  ? 0x1p-8
                              : 0x1p-5;
}

void expect_close(const at::Tensor& got, const at::Tensor& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  if (got.numel() == 0) return;
  const at::Tensor e = expected.detach().to(at::kDouble);
  const double off =
      ((got.detach().to(at::kDouble) - e).abs() / (1 + e.abs())).max().item<double>();
  EXPECT_LT(off, tolerance) << what;
}

class Norm : public testing::TestWithParam<NormCase> {};
INSTANTIATE_TEST_SUITE_P(Nn, Norm, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(Norm, AgreesWithDoubleForAllTypesShapesAndKernelSets) {
  const NormCase& c = GetParam();
  const std::vector<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>> shapes{
      {{5, 33}, {33}},   {{2, 3, 7, 5}, {7, 5}}, {{0, 8}, {8}}, {{768}, {768}},
      {{130, 16}, {16}}, {{3, 1}, {1}},          {{1}, {1}},    {{2, 3, 4}, {2, 3, 4}}};
  for (const std::string& set : kernel_sets()) {
    set_kernel_set(set);
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
      for (const auto& [sizes, shape] : shapes) {
        torch::manual_seed(3);
        const at::Tensor x = leaf(torch::randn(sizes), type);
        const at::Tensor weight =
            leaf(torch::rand(shape) + 0.5, type == at::kDouble ? type : at::kFloat);
        const at::Tensor bias = leaf(torch::randn(shape), type == at::kDouble ? type : at::kFloat);
        const at::Tensor dy = torch::randn(sizes).to(type);
        const at::Tensor y = ours(c, x, shape, weight, bias);
        y.backward(dy);

        const at::Tensor x64 = leaf(x, at::kDouble);
        const at::Tensor weight64 = leaf(weight, at::kDouble);
        const at::Tensor bias64 = leaf(bias, at::kDouble);
        const at::Tensor y64 = reference(c, x64, shape, weight64, bias64);
        y64.backward(dy.to(at::kDouble));

        EXPECT_EQ(y.scalar_type(), type);
        const std::string what = set + " " + c10::toString(type);
        // From the rounded output only so much of the input is known.
        const double loose =
            c.memory_efficient && type != at::kDouble && type != at::kFloat ? 8 : 1;
        const double tolerance = tolerance_of(type);
        expect_close(y, y64, tolerance, what + " y");
        expect_close(x.grad(), x64.grad(), 4 * loose * tolerance, what + " dx");
        expect_close(weight.grad(), weight64.grad(), 10 * loose * tolerance, what + " dweight");
        if (!c.rms) expect_close(bias.grad(), bias64.grad(), 10 * tolerance, what + " dbias");
      }
    }
  }
  set_kernel_set(kernel_sets().back());
}

TEST_P(Norm, PassesGradcheckAndGradgradcheck) {
  const NormCase& c = GetParam();
  torch::manual_seed(1);
  const at::Tensor x = leaf(torch::randn({3, 5}), at::kDouble);
  const at::Tensor weight = leaf(torch::rand({5}) + 0.5, at::kDouble);
  const at::Tensor bias = leaf(torch::randn({5}), at::kDouble);
  const at::Tensor probe = torch::randn({3, 5}, at::kDouble);
  const std::vector<at::Tensor> inputs =
      c.rms ? std::vector<at::Tensor>{x, weight} : std::vector<at::Tensor>{x, weight, bias};

  // A scalar of the values, and a scalar of the gradients: both against central differences.
  const auto value = [&] { return (ours(c, x, {5}, weight, bias).sin() * probe).sum(); };
  const auto of_gradients = [&] {
    at::Tensor sum = torch::zeros({}, at::kDouble);
    for (const at::Tensor& g : torch::autograd::grad({value()}, inputs, {}, true, true)) {
      sum = sum + (g * g * g).sum() + g.cos().sum();
    }
    return sum;
  };
  for (const std::function<at::Tensor()>& scalar :
       {std::function<at::Tensor()>(value), std::function<at::Tensor()>(of_gradients)}) {
    const auto grads = torch::autograd::grad({scalar()}, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (std::int64_t at = 0; at < inputs[i].numel(); ++at) {
        const double h = 1e-6;
        double* element = inputs[i].data_ptr<double>() + at;
        const double kept = *element;
        *element = kept + h;
        const double above = scalar().item<double>();
        *element = kept - h;
        const double below = scalar().item<double>();
        *element = kept;
        const double expected = (above - below) / (2 * h);
        EXPECT_NEAR(grads[i].view(-1)[at].item<double>(), expected, 1e-5 * (1 + std::abs(expected)))
            << "input " << i << " element " << at;
      }
    }
  }
}

TEST_P(Norm, HasGradientsWhereWeightsAndEpsAreZero) {
  const NormCase& c = GetParam();
  torch::manual_seed(2);
  for (const bool of_operators : {false, true}) {
    const at::Tensor x = leaf(torch::randn({4, 6}), at::kFloat);
    const at::Tensor weight = leaf(torch::tensor({1.0, 0.0, -0.0, 2.0, -1.0, 0.5}), at::kFloat);
    const at::Tensor bias = leaf(torch::randn({6}), at::kFloat);
    const at::Tensor y = c.rms ? fused_rms_norm(x, {6}, weight, 0, c.memory_efficient)
                               : fused_layer_norm(x, {6}, weight, bias, 0, c.memory_efficient);
    const auto grads = torch::autograd::grad({y.pow(2).sum()}, {x, weight}, {}, true, of_operators);
    for (const at::Tensor& grad : grads) EXPECT_TRUE(grad.isfinite().all().item<bool>());
  }
}

TEST_P(Norm, TakesNegatedViewsAsTheirValues) {
  const NormCase& c = GetParam();
  const at::Tensor negated = at::imag(torch::view_as_complex(torch::randn({4, 6, 2})).conj());
  ASSERT_TRUE(negated.is_neg());
  expect_close(ours(c, negated, {6}, {}, {}), ours(c, negated.clone(), {6}, {}, {}), 1e-12, "y");
}

TEST_P(Norm, TakesZerosWithoutMemory) {
  const NormCase& c = GetParam();
  const at::Tensor none = at::_efficientzerotensor({4, 6}, at::kFloat);
  const at::Tensor bias = c.rms ? at::Tensor() : torch::ones({6});
  EXPECT_TRUE(ours(c, none, {6}, {}, bias).equal(ours(c, torch::zeros({4, 6}), {6}, {}, bias)));
  const at::Tensor x = leaf(torch::randn({4, 6}), at::kFloat);
  ours(c, x, {6}, {}, {}).backward(none);
  EXPECT_TRUE(x.grad().equal(torch::zeros({4, 6})));
}

TEST_P(Norm, KeepsItsInputsTypeInsideAScopeOfCasts) {
  const NormCase& c = GetParam();
  const amp::Autocast scope(Policy::defaults(at::kBFloat16));
  const at::Tensor weight = leaf(torch::ones({6}), at::kFloat);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const at::Tensor x = leaf(torch::randn({4, 6}), type);
    const at::Tensor y = ours(c, x, {6}, weight, {});
    EXPECT_EQ(y.scalar_type(), type);
    y.sum().backward();
    EXPECT_EQ(x.grad().scalar_type(), type);
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  }
}

TEST_P(Norm, TakesNonContiguousInputsAndGradients) {
  const NormCase& c = GetParam();
  torch::manual_seed(1);
  const at::Tensor x = leaf(torch::randn({6, 4}).t(), at::kFloat);
  const at::Tensor weight = (torch::rand({12}) + 0.5).slice(0, 0, 12, 2);
  const at::Tensor y = ours(c, x, {6}, weight, {});
  const at::Tensor dy = torch::randn({6, 4}).t();
  y.backward(dy);
  const at::Tensor x64 = leaf(x, at::kDouble);
  reference(c, x64, {6}, weight.to(at::kDouble), {}).backward(dy.to(at::kDouble));
  expect_close(x.grad(), x64.grad(), 1e-4, "dx");
  EXPECT_EQ(ours(c, x.detach(), {6}, {}, {}).sizes(), x.sizes());
}

TEST_P(Norm, TakesWeightAndBiasEachWithoutTheOther) {
  const NormCase& c = GetParam();
  for (const bool has_weight : {false, true}) {
    torch::manual_seed(1);
    const at::Tensor x = leaf(torch::randn({5, 33}), at::kFloat);
    const at::Tensor affine = leaf(torch::rand({33}) + 0.5, at::kFloat);
    const at::Tensor weight = has_weight ? affine : at::Tensor();
    const at::Tensor bias = has_weight ? at::Tensor() : affine;
    const at::Tensor dy = torch::randn({5, 33});
    ours(c, x, {33}, weight, bias).backward(dy);
    const at::Tensor x64 = leaf(x, at::kDouble);
    const at::Tensor affine64 = leaf(affine, at::kDouble);
    const at::Tensor weight64 = has_weight ? affine64 : at::Tensor();
    const at::Tensor bias64 = has_weight ? at::Tensor() : affine64;
    reference(c, x64, {33}, weight64, bias64).backward(dy.to(at::kDouble));
    expect_close(x.grad(), x64.grad(), 1e-4, "dx");
    if (has_weight || !c.rms) expect_close(affine.grad(), affine64.grad(), 1e-4, "daffine");
  }
}

TEST_P(Norm, TakesMixturesOfTypes) {
  const NormCase& c = GetParam();
  for (const at::ScalarType x_type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const at::ScalarType w_type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
      torch::manual_seed(1);
      const at::Tensor x = leaf(torch::randn({4, 9}), x_type);
      const at::Tensor weight = leaf(torch::rand({9}) + 0.5, w_type);
      const at::Tensor y = ours(c, x, {9}, weight, {});
      EXPECT_EQ(y.scalar_type(), x_type);
      y.sum().backward();
      EXPECT_EQ(x.grad().scalar_type(), x_type);
      EXPECT_EQ(weight.grad().scalar_type(), w_type);
      expect_close(
          y, reference(c, x.detach().to(at::kDouble), {9}, weight.detach().to(at::kDouble), {}),
          tolerance_of(x_type), "y");
    }
  }
}

TEST_P(Norm, BadInputIsAnErrorThatSaysWhatWasGot) {
  const NormCase& c = GetParam();
  const at::Tensor x = torch::randn({4, 9});
  EXPECT_THROW(ours(c, x, {8}, {}, {}), ConfigError);
  EXPECT_THROW(ours(c, x, {}, {}, {}), ConfigError);
  EXPECT_THROW(ours(c, x, {2, 4, 9}, {}, {}), ConfigError);
  EXPECT_THROW(ours(c, x, {9}, torch::ones({8}), {}), ConfigError);
  EXPECT_THROW(ours(c, x.to(at::kInt), {9}, {}, {}), ConfigError);
  EXPECT_THROW(ours(c, x.to(at::kComplexFloat), {9}, {}, {}), ConfigError);
  EXPECT_THROW(ours(c, x.to_sparse(), {9}, {}, {}), ConfigError);
  EXPECT_THROW(ours(c, {}, {9}, {}, {}), ConfigError);
}

TEST(AddNorm, GivesTheSumAndItsNormAndBothCarryGradients) {
  for (const bool rms : {false, true}) {
    for (const auto& [x_type, residual_type] : {std::pair{at::kFloat, at::kFloat},
                                                {at::kBFloat16, at::kFloat},
                                                {at::kHalf, at::kHalf},
                                                {at::kDouble, at::kDouble}}) {
      torch::manual_seed(1);
      const at::Tensor x = leaf(torch::randn({70, 12}), x_type);
      const at::Tensor residual = leaf(torch::randn({70, 12}), residual_type);
      const at::Tensor weight = leaf(torch::rand({12}) + 0.5, residual_type);
      const auto [sum, y] = rms ? fused_add_rms_norm(x, residual, {12}, weight, kEps)
                                : fused_add_layer_norm(x, residual, {12}, weight, {}, kEps);
      EXPECT_EQ(sum.scalar_type(), residual_type);
      EXPECT_EQ(y.scalar_type(), x_type);
      EXPECT_TRUE(torch::equal(sum.detach(), (x + residual).detach()));
      ((y * y).sum() + sum.sin().sum()).backward();

      const at::Tensor x64 = leaf(x, at::kDouble);
      const at::Tensor residual64 = leaf(residual, at::kDouble);
      const at::Tensor weight64 = leaf(weight, at::kDouble);
      const at::Tensor sum64 = x64 + residual64;
      const at::Tensor y64 = reference({"", rms, false}, sum64, {12}, weight64, {});
      ((y64 * y64).sum() + sum64.sin().sum()).backward();
      const double tolerance = 8 * tolerance_of(x_type);
      expect_close(y, y64, tolerance, "y");
      expect_close(x.grad(), x64.grad(), tolerance, "dx");
      expect_close(residual.grad(), residual64.grad(), tolerance, "dresidual");
      expect_close(weight.grad(), weight64.grad(), 4 * tolerance, "dweight");
    }
  }
}

TEST(AddNorm, ItsSumAloneCarriesGradientsAndSecondDerivativesExist) {
  torch::manual_seed(1);
  const at::Tensor x = leaf(torch::randn({3, 5}), at::kDouble);
  const at::Tensor residual = leaf(torch::randn({3, 5}), at::kDouble);
  const auto [sum, y] = fused_add_layer_norm(x, residual, {5});
  const auto first = torch::autograd::grad({sum.pow(3).sum()}, {x}, {}, true, true);
  EXPECT_TRUE(torch::allclose(first[0], 3 * sum * sum));
  const auto of_norm = torch::autograd::grad({y.pow(3).sum()}, {x}, {}, true, true);
  const auto second = torch::autograd::grad({of_norm[0].pow(2).sum()}, {x});
  const at::Tensor x64 = leaf(x, at::kDouble);
  const at::Tensor y64 = at::layer_norm(x64 + residual.detach(), {5});
  const auto of_norm64 = torch::autograd::grad({y64.pow(3).sum()}, {x64}, {}, true, true);
  const auto second64 = torch::autograd::grad({of_norm64[0].pow(2).sum()}, {x64});
  expect_close(second[0], second64[0], 1e-9, "second derivative");
  EXPECT_THROW(fused_add_layer_norm(x, torch::randn({2, 5}), {5}), ConfigError);
  EXPECT_THROW(fused_add_rms_norm(x, {}, {5}), ConfigError);
}

TEST(NormModules, TrainSaveAndCloneAsModules) {
  FusedLayerNorm norm(std::vector<std::int64_t>{6});
  FusedRMSNorm rms(NormOptions{.normalized_shape = {2, 3}, .eps = 1e-3, .memory_efficient = true});
  EXPECT_EQ(norm->parameters().size(), 2);
  EXPECT_EQ(rms->parameters().size(), 1);
  torch::nn::LayerNorm native(torch::nn::LayerNormOptions({6}));
  const at::Tensor x = torch::randn({4, 6});
  EXPECT_TRUE(torch::allclose(norm(x), native(x), 1e-5, 1e-6));
  std::stringstream file;
  torch::save(native, file);
  torch::load(norm, file);
  const auto copy = std::dynamic_pointer_cast<FusedRMSNormImpl>(rms->clone());
  EXPECT_TRUE(torch::equal(copy->forward(x.view({4, 2, 3})), rms(x.view({4, 2, 3}))));
  torch::nn::Sequential stack(
      norm, FusedLayerNorm(NormOptions{.normalized_shape = {6}, .elementwise_affine = false}));
  EXPECT_EQ(stack->forward(x).sizes(), x.sizes());
  EXPECT_EQ(stack->parameters().size(), 2);
  EXPECT_THROW(FusedLayerNorm(NormOptions{}), ConfigError);
  EXPECT_THROW(FusedRMSNorm(std::vector<std::int64_t>{0}), ConfigError);
  std::ostringstream text;
  text << *rms;
  EXPECT_EQ(
      text.str(),
      "mezzo::nn::FusedRMSNorm([2, 3], eps=0.001, elementwise_affine=true, memory_efficient=true)");
}

TEST(NormModules, GiveTheSameBitsForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  const at::Tensor start = torch::randn({5000, 40});  // enough to be worth sharing
  std::vector<at::Tensor> results;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    FusedLayerNorm norm(std::vector<std::int64_t>{40});
    const at::Tensor x = leaf(start, at::kFloat);
    (norm(x) * start).sum().backward();
    results.insert(results.end(), {x.grad(), norm->weight.grad(), norm->bias.grad()});
  }
  at::set_num_threads(threads);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(results[i], results[i + 3]));
}

TEST(FusedNorm, PassesTangentsOnWhoeverWantsGradients) {
  for (const NormCase& c : kCases) {
    for (const bool wants_gradient : {false, true}) {
      const at::Tensor x = torch::randn({3, 5}, at::kDouble).requires_grad_(wants_gradient);
      const at::Tensor weight = torch::rand({5}, at::kDouble) + 0.5;
      const at::Tensor tangent = torch::randn({3, 5}, at::kDouble);
      const auto level = torch::autograd::ForwardADLevel::get_next_idx();
      const at::Tensor dual = at::_make_dual(x, tangent, static_cast<std::int64_t>(level));
      const auto tangent_of = [&](const at::Tensor& y) {
        return std::get<1>(at::_unpack_dual(y, static_cast<std::int64_t>(level)));
      };
      const at::Tensor got = tangent_of(ours(c, dual, {5}, weight, {}));
      const at::Tensor expected = tangent_of(reference(c, dual, {5}, weight, {}));
      ASSERT_TRUE(got.defined()) << c.name;
      EXPECT_TRUE(at::allclose(got, expected, 1e-10, 1e-12)) << c.name;
      torch::autograd::ForwardADLevel::release_idx(level);
    }
  }
}

}  // namespace
}  // namespace mezzo::nn
