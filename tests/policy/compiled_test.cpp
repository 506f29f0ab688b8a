#include "policy/compiled.h"

#include <gmock/gmock.h>

#include "mezzo/policy.h"
#include "operators/operators.h"
#include "policy/registry.h"

namespace mezzo {
namespace {

using enum CastClass;

TEST(CompiledPolicy, HasTheClassOfEveryRow) {
  const Policy policy = Policy::defaults(at::kBFloat16).with("softmax", kLow);
  const CompiledPolicy& view = compiled(policy);
  EXPECT_EQ(view.low(), at::kBFloat16);
  for (std::size_t row = 0; row < operators().size(); ++row) {
    const Operator& op = operators()[row];
    EXPECT_EQ(view.class_of(row), op.base() == "softmax" ? kLow : op.bfloat16) << op.name;
  }
  EXPECT_EQ(view.class_of(1 << 20), kNeutral);
}

TEST(CompiledPolicy, LivesWithACopyOfItsPolicy) {
  auto first = std::make_unique<Policy>(Policy::defaults().with("mm", kFloat));
  const Policy copy = *first;
  const CompiledPolicy& view = compiled(*first);
  first.reset();
  EXPECT_EQ(view.class_of(*index_of("mm")), kFloat);
  EXPECT_EQ(&view, &compiled(copy));
}

TEST(CompiledPolicy, HasRegisteredOperatorsBehindTheTable) {
  const auto rows = register_operator("my_ops::compiled", kLow);
  EXPECT_EQ(compiled(Policy::defaults()).class_of(rows[0]), kLow);
}

TEST(CompiledPolicy, KnowsTheConditionOfARow) {
  const Policy policy = Policy::defaults().with_conditional("gelu", "approximate", {"tanh"});
  const std::size_t row = *index_of("gelu");
  ASSERT_NE(compiled(policy).condition_of(row), nullptr);
  EXPECT_EQ(compiled(policy).condition_of(row)->argument, "approximate");
  EXPECT_EQ(compiled(Policy::defaults()).condition_of(row), nullptr);
}

}  // namespace
}  // namespace mezzo
