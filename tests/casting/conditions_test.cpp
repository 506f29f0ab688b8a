// Operators that an argument decides about, in a scope.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "casting/row.h"
#include "mezzo/autocast.h"

namespace mezzo::casting {
namespace {

using amp::Autocast;

at::Tensor shifted(const at::Tensor& x, std::optional<at::ScalarType>) {
  return x + 1;
}

TORCH_LIBRARY(mezzo_conditions_test, library) {
  library.def("shifted(Tensor x, ScalarType? type=None) -> Tensor", shifted);
}

Policy policy_of(const char* op, const char* argument, const char* value) {
  return Policy::defaults(at::kBFloat16).with_conditional(op, argument, {value});
}

at::Tensor grouped(std::int64_t groups, at::ScalarType type) {
  return at::conv2d(at::ones({1, 4, 5, 5}, type), at::ones({4, 4 / groups, 3, 3}, type), {},
                    at::IntArrayRef({1, 1}), at::IntArrayRef({0, 0}), at::IntArrayRef({1, 1}),
                    groups);
}

TEST(Conditions, HoldOnSizesAndCounts) {
  const Autocast scope(policy_of("conv2d.default", "groups", "4"));
  EXPECT_EQ(grouped(4, at::kBFloat16).scalar_type(), at::kFloat);
  EXPECT_EQ(grouped(2, at::kBFloat16).scalar_type(), at::kBFloat16);
}

TEST(Conditions, LeaveTheOperatorAloneWhereTheyDoNotHold) {
  const Autocast scope(policy_of("conv2d.default", "groups", "4"));
  EXPECT_EQ(grouped(2, at::kFloat).scalar_type(), at::kFloat);
}

TEST(Conditions, HoldOnIntegersBooleansNumbersAndTypes) {
  const at::Tensor x = at::ones({2, 2}, at::kBFloat16);
  {
    const Autocast scope(policy_of("logcumsumexp", "dim", "1"));
    EXPECT_EQ(at::logcumsumexp(x, 1).scalar_type(), at::kFloat);
    EXPECT_EQ(at::logcumsumexp(x, 0).scalar_type(), at::kBFloat16);
  }
  {
    const Autocast scope(policy_of("amax", "keepdim", "true"));
    EXPECT_EQ(at::amax(x, {0}, true).scalar_type(), at::kFloat);
    EXPECT_EQ(at::amax(x, {0}, false).scalar_type(), at::kBFloat16);
  }
  {
    const Autocast scope(policy_of("add.Tensor", "alpha", "0.5"));
    EXPECT_EQ(at::add(x, x, 0.5).scalar_type(), at::kFloat);
    EXPECT_EQ(at::add(x, x, 2).scalar_type(), at::kBFloat16);
  }
  {
    const auto op = c10::Dispatcher::singleton()
                        .findSchemaOrThrow("mezzo_conditions_test::shifted", "")
                        .typed<at::Tensor(const at::Tensor&, std::optional<at::ScalarType>)>();
    const Autocast scope(policy_of("mezzo_conditions_test::shifted", "type", "float64"));
    EXPECT_EQ(op.call(x, at::kDouble).scalar_type(), at::kFloat);
    EXPECT_EQ(op.call(x, at::kFloat).scalar_type(), at::kBFloat16);
    EXPECT_EQ(op.call(x, std::nullopt).scalar_type(), at::kBFloat16);
  }
}

TEST(Conditions, HoldOnArgumentsThatACallLeavesOut) {
  const at::Tensor image = at::ones({1, 4, 5, 5}, at::kBFloat16), x = image[0][0];
  const at::Tensor weight = at::ones({4, 4, 3, 3}, at::kBFloat16);
  for (const char* one : {"1", "1.0"}) {
    const Autocast scope(policy_of("conv2d", "groups", one));
    EXPECT_EQ(at::conv2d(image, weight).scalar_type(), at::kFloat);
    EXPECT_EQ(at::conv2d(image, weight, {}, 1, "same").scalar_type(), at::kFloat);
    EXPECT_EQ(grouped(2, at::kBFloat16).scalar_type(), at::kBFloat16);
  }
  const auto left_out = [&](const char* op, const char* argument, const char* value, auto call) {
    const Autocast scope(policy_of(op, argument, value));
    return at::Tensor(call()).scalar_type();
  };
  EXPECT_EQ(left_out("elu", "alpha", "1", [&] { return at::elu(x); }), at::kFloat);
  EXPECT_EQ(left_out("elu", "alpha", "2", [&] { return at::elu(x); }), at::kBFloat16);
  EXPECT_EQ(left_out("gelu", "approximate", "none", [&] { return at::gelu(x); }), at::kFloat);
  EXPECT_EQ(left_out("addmm", "beta", "1", [&] { return at::addmm(x, x, x); }), at::kFloat);
  EXPECT_EQ(left_out("leaky_relu", "negative_slope", "1e-2", [&] { return at::leaky_relu(x); }),
            at::kFloat);
  EXPECT_EQ(left_out("layer_norm", "eps", "1e-5", [&] { return at::layer_norm(x, {5}); }),
            at::kFloat);
  EXPECT_EQ(left_out("avg_pool2d", "divisor_override", "none",
                     [&] {
                       return at::avg_pool2d(image, {2, 2});
                     }),
            at::kFloat);
}

TEST(Conditions, ReadArgumentsAsAPolicyWritesThem) {
  EXPECT_EQ(text_of(true), "true");
  EXPECT_EQ(text_of(std::int64_t{-7}), "-7");
  EXPECT_EQ(text_of(0.5), "0.5");
  EXPECT_EQ(text_of(at::kBFloat16), "bfloat16");
  EXPECT_EQ(text_of(at::kComplexFloat), "ComplexFloat");
  EXPECT_EQ(text_of(c10::SymInt(4)), "4");
  EXPECT_EQ(text_of(at::Scalar(2)), "2");
  EXPECT_EQ(text_of(at::Scalar(true)), "true");
  EXPECT_EQ(text_of(at::Scalar(c10::complex<double>(1, 1))), "");
  EXPECT_EQ(argument_text_of(std::optional<at::ScalarType>()), "none");
  EXPECT_EQ(argument_text_of(std::optional<c10::SymInt>(4)), "4");
}

}  // namespace
}  // namespace mezzo::casting
