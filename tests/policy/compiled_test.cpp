#include "policy/compiled.h"

#include <gmock/gmock.h>

#include "mezzo/policy.h"
#include "operators/operators.h"
#include "policy/registry.h"

namespace mezzo {
namespace {

using enum CastClass;

Treatment expected(const Operator& op) {
  if (op.alone) return Treatment::kShield;
  if (op.base() == "softmax" || op.class_for(DType::kBFloat16) == kLow) return Treatment::kLow;
  if (op.class_for(DType::kBFloat16) == kFloat) return Treatment::kFloat;
  if (op.class_for(DType::kBFloat16) == kPromote && !op.native_promotion)
    return Treatment::kPromote;
  return Treatment::kPass;
}

TEST(CompiledPolicy, HasTheTreatmentOfEveryRow) {
  const Policy policy = Policy::defaults(at::kBFloat16).with("softmax", kLow);
  const CompiledPolicy& view = compiled(policy);
  EXPECT_EQ(view.low(), at::kBFloat16);
  for (std::size_t row = 0; row < operators().size(); ++row) {
    EXPECT_EQ(view.treatment_of(row), expected(operators()[row])) << operators()[row].name;
  }
  EXPECT_EQ(view.treatment_of(1 << 20), Treatment::kPass);
}

TEST(CompiledPolicy, ShieldsWhatThePolicyMadeNeutral) {
  const Policy defaults = Policy::defaults();
  const auto of = [](const Policy& policy, const char* op) {
    const auto rows = rows_named(op);
    return compiled(policy).treatment_of(rows.at(0));
  };
  EXPECT_EQ(of(defaults.with("conv2d", kNeutral), "conv2d"), Treatment::kShield);
  EXPECT_EQ(of(defaults.with("celu", kNeutral), "celu"), Treatment::kShield);
  EXPECT_EQ(of(defaults, "celu"), Treatment::kPass) << "no list has it";
  EXPECT_EQ(of(defaults.with("relu", kNeutral), "relu"), Treatment::kPass) << "as by default";
  EXPECT_EQ(of(defaults.with("add.Tensor", kNeutral), "add.Tensor"), Treatment::kPass)
      << "LibTorch promotes by itself";
}

TEST(CompiledPolicy, RemembersThatItIsInstalled) {
  const Policy policy = Policy::defaults().with("mm", kLow);
  EXPECT_FALSE(compiled(policy).is_installed());
  compiled(policy).mark_installed();
  const Policy copy = policy;
  EXPECT_TRUE(compiled(copy).is_installed());
  EXPECT_FALSE(compiled(policy.with("bmm", kFloat)).is_installed());
}

TEST(CompiledPolicy, LivesWithACopyOfItsPolicy) {
  auto first = std::make_unique<Policy>(Policy::defaults().with("mm", kFloat));
  const Policy copy = *first;
  const CompiledPolicy& view = compiled(*first);
  first.reset();
  EXPECT_EQ(view.treatment_of(*index_of("mm")), Treatment::kFloat);
  EXPECT_EQ(&view, &compiled(copy));
}

TEST(CompiledPolicy, HasRegisteredOperatorsBehindTheTable) {
  const auto rows = register_operator("my_ops::compiled", kLow);
  EXPECT_EQ(compiled(Policy::defaults()).treatment_of(rows[0]), Treatment::kLow);
  EXPECT_EQ(&compiled(Policy::defaults()), &compiled(Policy::defaults())) << "made once";
  register_operator("my_ops::compiled", kFloat);
  EXPECT_EQ(compiled(Policy::defaults()).treatment_of(rows[0]), Treatment::kFloat);
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
