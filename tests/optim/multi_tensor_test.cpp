#include <limits>

#include "mezzo/error.h"
#include "mezzo/optim.h"
#include "optim/trajectory.h"

namespace mezzo::optim {
namespace {

using namespace testing_support;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ClipGradNorm, AgreesWithTorchForEveryNorm) {
  for (const double type : {2.0, 1.0, 3.0, kInfinity}) {
    for (const double most : {0.01, 1.0, 1000.0}) {
      const auto ours = make_parameters();
      const auto theirs = make_parameters();
      set_gradients(ours, 1);
      set_gradients(theirs, 1);
      ours[1].mutable_grad() = at::Tensor();
      theirs[1].mutable_grad() = at::Tensor();
      const at::Tensor norm = clip_grad_norm_(ours, most, type);
      const std::vector<at::Tensor> some{theirs[0], theirs[2], theirs[4], theirs[5], theirs[6]};
      const double expected = torch::nn::utils::clip_grad_norm_(some, most, type);
      EXPECT_NEAR(norm.item<double>(), expected, 1e-5 * expected) << type;
      for (const std::size_t i : {0, 2, 4, 5, 6}) {
        EXPECT_TRUE(torch::allclose(ours[i].grad(), theirs[i].grad(), 1e-5, 1e-9)) << type << i;
      }
    }
  }
}

TEST(ClipGradNorm, TakesMixedTypes) {
  const auto params = make_parameters();
  set_gradients(params, 1);
  double squares = 0;
  at::Tensor half = torch::ones({100}, at::kHalf).requires_grad_(true);
  half.mutable_grad() = torch::full({100}, 300.0, at::kHalf);  // the square overflows half
  for (const at::Tensor& param : params) squares += param.grad().pow(2).sum().item<double>();
  auto all = params;
  all.push_back(half);
  const double norm = clip_grad_norm_(all, 1).item<double>();
  EXPECT_NEAR(norm, std::sqrt(squares + 100 * 90000.0), 1e-3);
  EXPECT_NEAR(half.grad()[0].item<double>(), 300 / norm, 1e-4);
}

TEST(ClipGradNorm, ANormThatIsNotFiniteIsAnErrorIfAskedForAndNothingChanges) {
  const auto params = make_parameters();
  set_gradients(params, 1);
  params[5].mutable_grad()[3] = NAN;
  const at::Tensor before = params[0].grad().clone();
  EXPECT_THROW(clip_grad_norm_(params, 1, 2, true), Error);
  EXPECT_TRUE(torch::equal(params[0].grad(), before));
  EXPECT_TRUE(std::isnan(clip_grad_norm_(params, 1).item<double>()));
}

TEST(ClipGradNorm, BadArgumentsAreErrorsAndNoGradientsAreFine) {
  const auto params = make_parameters();
  EXPECT_THROW(clip_grad_norm_(params, -1), ConfigError);
  EXPECT_THROW(clip_grad_norm_(params, NAN), ConfigError);
  EXPECT_THROW(clip_grad_norm_(params, 1, 0), ConfigError);
  EXPECT_EQ(clip_grad_norm_(params, 1).item<double>(), 0);
  EXPECT_EQ(clip_grad_norm_({}, 1).item<double>(), 0);
  EXPECT_THROW(clip_grad_norm_({at::Tensor()}, 1), ConfigError);
}

TEST(ClipGradNorm, GradientsThatHaveNoNormAreNamedWhateverTheNorm) {
  for (const double type : {2.0, 1.0, kInfinity}) {
    const auto params = make_parameters();
    set_gradients(params, 1);
    params[1].mutable_grad() = at::Tensor();
    params[4].mutable_grad() = torch::zeros({8, 3, 3, 3}).to_sparse();
    const at::Tensor before = params[0].grad().clone();
    try {
      clip_grad_norm_(params, 1e-3, type);
      ADD_FAILURE() << type;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("the gradient of parameter 4")) << type;
    }
    EXPECT_TRUE(torch::equal(params[0].grad(), before));
  }
}

TEST(ClipGradNorm, AParameterThatIsListedTwiceCountsOnce) {
  for (const double type : {2.0, 1.0, kInfinity}) {
    const auto params = make_parameters();
    const auto others = make_parameters();
    set_gradients(params, 1);
    set_gradients(others, 1);
    auto twice = params;
    twice.insert(twice.end(), params.begin(), params.end());
    const double norm = clip_grad_norm_(twice, 0.01, type).item<double>();
    EXPECT_EQ(norm, clip_grad_norm_(others, 0.01, type).item<double>());
    for (std::size_t i = 0; i < params.size(); ++i) {
      EXPECT_TRUE(torch::equal(params[i].grad(), others[i].grad())) << type << ' ' << i;
    }
  }
}

TEST(ClipGradNorm, GradientsThatOverlapAreNamedWhetherItClipsOrNot) {
  for (const double most : {1e-3, 1e6}) {
    const auto params = make_parameters();
    const auto expect_error = [&](const char* message) {
      try {
        clip_grad_norm_(params, most);
        ADD_FAILURE() << most << ": no error";
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(message)) << most;
      }
      EXPECT_EQ(params[0].grad().sum().item<double>(), 17 * 33);
    };
    params[0].mutable_grad() = torch::ones({17, 33});
    params[5].mutable_grad() = torch::ones({1}).expand({20000});
    expect_error("the gradient of parameter 5 overlaps itself");
    params[5].mutable_grad() = torch::ones({20000});
    params[1].mutable_grad() = params[5].grad().narrow(0, 7, 5);
    expect_error("the gradient of parameter 1 and the gradient of parameter 5 overlap");
  }
}

TEST(MultiTensor, ScaleSetsTheFlagAndNeverClearsIt) {
  const std::vector<at::Tensor> in{torch::randn({1000}), torch::randn({3, 3})};
  std::vector<at::Tensor> out{torch::empty({1000}, at::kHalf), torch::empty({3, 3})};
  for (at::Tensor found : {torch::zeros({1}), torch::zeros({}, at::kInt)}) {
    multi_tensor_scale(in, out, 2, found);
    EXPECT_EQ(found.item<float>(), 0);
    EXPECT_TRUE(torch::equal(out[0], (in[0] * 2).to(at::kHalf)));
    multi_tensor_scale(in, out, 1e6, found);
    EXPECT_EQ(found.item<float>(), 1) << "the half output overflowed";
    multi_tensor_scale(in, out, 2, found);
    EXPECT_EQ(found.item<float>(), 1);
  }
}

TEST(MultiTensor, AxpbyFlagsEitherInput) {
  const std::vector<at::Tensor> x{torch::randn({100})};
  const std::vector<at::Tensor> y{torch::randn({100}).to(at::kBFloat16)};
  std::vector<at::Tensor> out{torch::empty({100})};
  at::Tensor found = torch::zeros({1});
  multi_tensor_axpby(x, y, out, 2, -3, found);
  EXPECT_TRUE(torch::allclose(out[0], 2 * x[0] - 3 * y[0].to(at::kFloat)));
  EXPECT_EQ(found.item<float>(), 0);
  y[0][50] = INFINITY;
  multi_tensor_axpby(x, y, out, 2, -3, found);
  EXPECT_EQ(found.item<float>(), 1);
}

TEST(MultiTensor, L2normGivesBoth) {
  const std::vector<at::Tensor> list{torch::randn({70000}), torch::randn({5}).to(at::kHalf),
                                     torch::empty({0})};
  const auto [norm, norms] = multi_tensor_l2norm(list, true);
  double squares = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const double expected = list[i].to(at::kDouble).norm().item<double>();
    EXPECT_NEAR(norms[static_cast<std::int64_t>(i)].item<double>(), expected, 1e-6 * expected);
    squares += expected * expected;
  }
  EXPECT_NEAR(norm.item<double>(), std::sqrt(squares), 1e-4);
  EXPECT_FALSE(multi_tensor_l2norm(list).second.defined());
}

TEST(MultiTensor, TheNormOfFloatsIsInfiniteOnlyAboveFloatsLargest) {
  const std::vector<at::Tensor> large{torch::full({4}, 1e38)};
  EXPECT_NEAR(multi_tensor_l2norm(large).first.item<double>(), 2e38, 1e32);
  const std::vector<at::Tensor> larger{torch::full({100}, 3e38)};
  EXPECT_TRUE(std::isinf(multi_tensor_l2norm(larger).first.item<double>()));
}

TEST(MultiTensor, AMissingFlagIsAnError) {
  at::Tensor found;
  EXPECT_THROW(multi_tensor_scale({}, {}, 1, found), ConfigError);
}

}  // namespace
}  // namespace mezzo::optim
