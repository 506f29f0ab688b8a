#include "casting/scope.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <stdexcept>

#include "mezzo/autocast.h"

namespace mezzo::casting {
namespace {

at::Tensor product_in_a_scope(const at::Tensor& x) {
  const amp::Autocast scope(Policy::defaults(at::kBFloat16));
  return at::mm(x, x);
}

at::Tensor product_after_a_scope(const at::Tensor& x) {
  product_in_a_scope(x);
  return at::mm(x, x);
}

TORCH_LIBRARY(mezzo_scope_test, library) {
  library.def("product_in_a_scope(Tensor x) -> Tensor", product_in_a_scope);
  library.def("product_after_a_scope(Tensor x) -> Tensor", product_after_a_scope);
}

at::ScalarType type_of(const char* op, const at::Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(op, "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x)
      .scalar_type();
}

TEST(Scope, CastsInsideAListedOperatorThatOpensOne) {
  amp::register_float_function("mezzo_scope_test::product_in_a_scope");
  const at::Tensor x = at::ones({2, 2});
  EXPECT_EQ(type_of("mezzo_scope_test::product_in_a_scope", x), at::kBFloat16);
  const amp::Autocast scope(Policy::defaults(at::kBFloat16));
  EXPECT_EQ(type_of("mezzo_scope_test::product_in_a_scope", x), at::kBFloat16);
}

TEST(Scope, LeavesTheShieldOfAListedOperatorAsItWas) {
  amp::register_float_function("mezzo_scope_test::product_after_a_scope");
  const at::Tensor x = at::ones({2, 2});
  const amp::Autocast scope(Policy::defaults(at::kBFloat16));
  EXPECT_EQ(type_of("mezzo_scope_test::product_after_a_scope", x), at::kFloat);
  EXPECT_EQ(at::mm(x, x).scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace mezzo::casting
