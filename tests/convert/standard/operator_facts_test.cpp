// Facts about operators by name.
#include "convert/standard/operator_facts.h"

#include <gmock/gmock.h>

#include "operators/operators.h"

namespace mezzo::convert {
namespace {

using testing::HasSubstr;

TEST(OperatorFacts, TakeClassAndReasonFromTheOperatorTable) {
  for (const OperatorFacts& facts : operator_facts()) {
    if (facts.aten.empty()) continue;
    const auto row = index_of(facts.aten);
    ASSERT_TRUE(row) << facts.op << ": " << facts.aten;
    EXPECT_EQ(default_class(facts.op, Element::kFloat16),
              operators()[*row].class_for(DType::kFloat16))
        << facts.op;
    EXPECT_EQ(default_class(facts.op, Element::kBFloat16),
              operators()[*row].class_for(DType::kBFloat16))
        << facts.op;
    EXPECT_THAT(default_reason(facts.op, Element::kFloat16), HasSubstr(operators()[*row].why));
  }
}

TEST(OperatorFacts, GiveTheReasonOfTheType) {
  EXPECT_EQ(default_class("Elu", Element::kFloat16), CastClass::kFloat);
  EXPECT_EQ(default_class("Elu", Element::kBFloat16), CastClass::kNeutral);
  EXPECT_THAT(default_reason("Elu", Element::kBFloat16),
              HasSubstr("follows its neighbours in bfloat16"));
  EXPECT_THAT(default_reason("Elu", Element::kFloat16),
              testing::Not(HasSubstr("follows its neighbours")));
}

}  // namespace
}  // namespace mezzo::convert
