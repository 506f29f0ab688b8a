#include "casting/layer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "casting/bindings.h"
#include "mezzo/autocast.h"
#include "mezzo/hardware.h"
#include "operators/operators.h"

namespace mezzo::casting {
namespace {

using amp::Autocast;
using enum CastClass;

at::Tensor needs_half(const at::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kHalf, "got ", x.scalar_type());
  return x + x;
}

at::Tensor product(const at::Tensor& x) {
  return at::mm(x, x);
}

TORCH_LIBRARY(mezzo_layer_test, library) {
  library.def("needs_half(Tensor x) -> Tensor", needs_half);
  library.def("product(Tensor x) -> Tensor", product);
}

at::Tensor call(const char* op, const at::Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(op, "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x);
}

/// A compute mode until the end of a test.
class Computed {
 public:
  explicit Computed(ComputeMode mode) { set_compute_mode(at::kHalf, mode); }
  ~Computed() { set_compute_mode(at::kHalf, ComputeMode::kAuto); }
};

TEST(Layer, KernelsLookAtScalarsWhereTheirRowsSaySo) {
  Binder binder;
  bind_matrix(binder);
  bind_convolution(binder);
  bind_pointwise(binder);
  bind_loss(binder);
  bind_guarded(binder);
  for (const Binder::Binding& binding : binder.bindings()) {
    std::string overload = binding.name.substr(std::string_view("aten::").size());
    if (!binding.overload.empty()) overload += "." + binding.overload;
    const auto found = find(overload);
    if (!found || found->row >= operators().size()) continue;
    EXPECT_EQ(binding.guards, operators()[found->row].guards_scalars) << overload;
  }
}

TEST(Layer, APolicyLeavesNoTraceInAnother) {
  const at::Tensor half = at::ones({4}, at::kHalf);
  const at::Tensor zero_dimensional = at::scalar_tensor(1.0F);
  const Policy defaults = Policy::defaults();
  const auto types = [&] {
    const Autocast scope(defaults);
    return std::pair((half + zero_dimensional).scalar_type(),
                     (half * zero_dimensional).scalar_type());
  };
  const auto before = types();
  {
    const Autocast scope(defaults.with("add", kFloat).with("mul", kFloat));
    EXPECT_EQ((half + zero_dimensional).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(types(), before);
  EXPECT_EQ(before, std::pair(at::kHalf, at::kHalf));
}

TEST(Layer, ANeutralListedOperatorComputesInWhatArrives) {
  const at::Tensor x = at::ones({2, 3});
  const at::Tensor weight = at::ones({4, 3});
  const at::Tensor image = at::ones({1, 3, 5, 5});
  const at::Tensor filter = at::ones({4, 3, 3, 3});
  const Autocast scope(Policy::defaults(at::kBFloat16)
                           .with("aten::linear", kNeutral)
                           .with("conv2d", kNeutral)
                           .with("matmul", kNeutral));
  EXPECT_EQ(at::linear(x, weight).scalar_type(), at::kFloat);
  EXPECT_EQ(at::conv2d(image, filter).scalar_type(), at::kFloat);
  EXPECT_EQ(at::matmul(x, weight.t()).scalar_type(), at::kFloat);
  EXPECT_EQ(at::mm(x, weight.t()).scalar_type(), at::kBFloat16) << "others follow their class";
  const at::Tensor low = x.to(at::kBFloat16);
  EXPECT_EQ(at::linear(low, weight.to(at::kBFloat16)).scalar_type(), at::kBFloat16);
}

TEST(Layer, ANeutralOperatorOfAUserComputesInWhatArrives) {
  const at::Tensor x = at::ones({2, 2});
  const Policy defaults = Policy::defaults(at::kBFloat16);
  const Policy neutral = defaults.with("mezzo_layer_test::product", kNeutral);
  {
    const Autocast scope(neutral);
    EXPECT_EQ(call("mezzo_layer_test::product", x).scalar_type(), at::kFloat);
  }
  const Autocast scope(defaults);
  EXPECT_EQ(call("mezzo_layer_test::product", x).scalar_type(), at::kBFloat16)
      << "an operator that no list has is like a function: what it calls follows its own class";
}

TEST(Layer, AveragePoolingToOneValueKeepsTheType) {
  const at::Tensor volume = at::ones({2, 3, 4, 4, 4}, at::kBFloat16);
  const at::Tensor image = volume.select(2, 0);
  const at::Tensor line = image.select(2, 0);
  const Autocast scope(Policy::defaults(at::kBFloat16));
  for (const std::int64_t size : {1, 2}) {
    EXPECT_EQ(at::adaptive_avg_pool1d(line, size).scalar_type(), at::kBFloat16) << size;
    EXPECT_EQ(at::adaptive_avg_pool2d(image, {size, size}).scalar_type(), at::kBFloat16) << size;
    EXPECT_EQ(at::adaptive_avg_pool3d(volume, {size, size, size}).scalar_type(), at::kBFloat16)
        << size;
  }
}

TEST(Layer, CoordinatesAndCovariancesAreComputedInFloat) {
  const at::Tensor x = at::randn({4, 4});
  const at::Tensor low = x.to(at::kBFloat16);
  const at::Tensor identity = at::eye(2, at::kFloat).unsqueeze(0).matmul(at::eye(2, 3, at::kFloat));
  const at::Tensor grid = at::affine_grid_generator(identity, {1, 1, 512, 512}, false);
  const Autocast scope(Policy::defaults(at::kBFloat16));
  EXPECT_TRUE(at::equal(at::affine_grid_generator(identity, {1, 1, 512, 512}, false), grid));
  for (const at::Tensor& input : {x, low}) {
    EXPECT_EQ(at::cov(input).scalar_type(), at::kFloat);
    EXPECT_EQ(at::corrcoef(input).scalar_type(), at::kFloat);
    EXPECT_EQ(at::matrix_power(input, 3).scalar_type(), at::kFloat);
    EXPECT_EQ(at::linalg_matrix_power(input, 3).scalar_type(), at::kFloat);
    EXPECT_EQ(at::linalg_matrix_exp(input).scalar_type(), at::kFloat);
    EXPECT_EQ(at::matrix_exp(input).scalar_type(), at::kFloat);
  }
}

TEST(Layer, OperatorsThatAreNoProductsGetTheLowTypeOnEmulatedProcessorsToo) {
  amp::register_half_function("mezzo_layer_test::needs_half");
  const at::Tensor x = at::ones({2});
  const at::Tensor square = at::ones({2, 2});
  for (const ComputeMode mode : {ComputeMode::kNative, ComputeMode::kEmulated}) {
    const Computed computed(mode);
    const Autocast scope(Policy::defaults().with("softmax", kLow));
    EXPECT_EQ(call("mezzo_layer_test::needs_half", x).scalar_type(), at::kHalf);
    EXPECT_EQ(at::softmax(square, 1).scalar_type(), at::kHalf);
    EXPECT_EQ(at::prelu(square, at::ones({1})).scalar_type(), at::kHalf);
    EXPECT_EQ(at::addr(square, x, x).scalar_type(), at::kHalf);
    EXPECT_EQ(at::mm(square, square).scalar_type(), at::kHalf);
  }
}

TEST(Layer, AnOperatorThatIsNeutralByNobodysWordHasNoKernel) {
  const Policy policy = Policy::defaults();
  EXPECT_EQ(policy.classify("celu"), kNeutral);
  const Autocast scope(Policy::defaults());
  for (const LayerOperator& op : layer_operators()) EXPECT_NE(op.name, "celu");
}

}  // namespace
}  // namespace mezzo::casting
