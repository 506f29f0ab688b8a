#include "policy/rules.h"

#include <gmock/gmock.h>

#include "mezzo/error.h"
#include "operators/operators.h"

namespace mezzo {
namespace {

using enum CastClass;
using testing::AllOf;
using testing::HasSubstr;

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "nothing was thrown";
}

const Rules half(DType::kFloat16);
const Rules bfloat(DType::kBFloat16);

TEST(Rules, StartFromTheTable) {
  for (const Operator& op : operators()) {
    const std::size_t row = *index_of(op.name);
    EXPECT_EQ(half.class_of(row), op.class_for(DType::kFloat16)) << op.name;
    EXPECT_EQ(bfloat.class_of(row), op.class_for(DType::kBFloat16)) << op.name;
    EXPECT_FALSE(half.why(std::string(op.name)).empty()) << op.name;
  }
  EXPECT_EQ(half.class_of(1 << 20), kNeutral) << "a row that nobody registered";
}

TEST(Rules, OnlyTheTwoLowTypesHaveAny) {
  EXPECT_THAT(error_of([] { Rules rules(DType::kFloat32); }),
              AllOf(HasSubstr("float32"), HasSubstr("float16 or bfloat16")));
}

TEST(Rules, AnOverrideChangesACopy) {
  const Rules changed = half.with("softmax", kLow);
  EXPECT_EQ(changed.classify("softmax.int"), kLow);
  EXPECT_EQ(changed.classify("aten::softmax"), kLow);
  EXPECT_EQ(half.classify("softmax.int"), kFloat);
  EXPECT_THAT(changed.why("softmax.int"),
              AllOf(HasSubstr("override of 'softmax'"), HasSubstr("the default is float")));
}

TEST(Rules, NamesOfBothSystemsAreAccepted) {
  const Rules changed = half.with("FullyConnected", kFloat)
                            .with("torch.nn.functional.softmax", kLow)
                            .with("F.gelu", kNeutral);
  EXPECT_EQ(changed.classify("linear"), kFloat);
  EXPECT_EQ(changed.classify("addmm"), kFloat);
  EXPECT_EQ(changed.classify("softmax.int"), kLow);
  EXPECT_EQ(changed.classify("gelu"), kNeutral);
}

TEST(Rules, AnUnknownNameIsAnErrorWithTheNearestNames) {
  for (const auto& message :
       {error_of([] { half.with("softmx", kLow); }), error_of([] { half.classify("softmx"); }),
        error_of([] { half.why("softmx"); }),
        error_of([] { half.with_conditional("softmx", "dim", {"1"}); })}) {
    EXPECT_THAT(message, AllOf(HasSubstr("unknown operator 'softmx'"), HasSubstr("'softmax'")));
  }
  EXPECT_THAT(error_of([] { half.with("", kLow); }), HasSubstr("unknown operator ''"));
}

TEST(Rules, ANameInTwoClassesIsAnError) {
  EXPECT_THAT(error_of([] { half.with("linear", kLow).with("linear", kFloat); }),
              HasSubstr("'linear' is in two classes: low (as 'linear') and float"));
  EXPECT_THAT(error_of([] { half.with("FullyConnected", kLow).with("linear", kFloat); }),
              HasSubstr("'linear' is in two classes: low (as 'FullyConnected') and float"));
  EXPECT_EQ(half.with("linear", kFloat).with("linear", kFloat).classify("linear"), kFloat)
      << "twice the same is no contradiction";
}

TEST(Rules, TheNarrowerNameWinsInAnyOrder) {
  EXPECT_EQ(half.with("linear", kFloat).with("aten::linear", kLow).classify("aten::linear"), kLow);
  for (const Rules& changed : {half.with("conv2d", kFloat).with("conv2d.padding", kNeutral),
                               half.with("conv2d.padding", kNeutral).with("conv2d", kFloat)}) {
    EXPECT_EQ(changed.classify("conv2d.default"), kFloat);
    EXPECT_EQ(changed.classify("conv2d.padding"), kNeutral);
  }
}

TEST(Rules, InPlaceAndOutFormsHaveNoClassOfTheirOwn) {
  EXPECT_THAT(error_of([] { half.with("exp_", kLow); }),
              AllOf(HasSubstr("follows 'exp' by rule"), HasSubstr("name that instead")));
  EXPECT_EQ(half.classify("addmm_"), kLow);
  EXPECT_THAT(half.why("addmm_"), HasSubstr("keeps self's type"));
  EXPECT_THAT(half.why("mm.out"), HasSubstr("keeps the type of the given tensor"));
}

TEST(Rules, ForeignNamesAreKeptAndDecideAboutNothing) {
  const Rules changed = half.with("sgd_update", kFloat);
  EXPECT_EQ(changed.classes(), half.classes());
  ASSERT_EQ(changed.overrides().size(), 1U);
  EXPECT_EQ(changed.overrides()[0].name, "sgd_update");
  EXPECT_EQ(half.classify("sgd_update"), kNeutral);
  EXPECT_FALSE(half.why("sgd_update").empty());
}

TEST(Rules, AConditionIsKeptWithItsRow) {
  const Rules changed = half.with_conditional("gelu", "approximate", {"tanh"});
  EXPECT_EQ(changed.classify("gelu"), kConditional);
  ASSERT_EQ(changed.conditionals().size(), 1U);
  EXPECT_EQ(changed.conditionals()[0].row, *index_of("gelu"));
  EXPECT_EQ(changed.conditionals()[0].argument, "approximate");
  EXPECT_THAT(changed.conditionals()[0].values, testing::ElementsAre("tanh"));
}

TEST(Rules, MxnetsConditionsMeanTheOperatorOfEachValue) {
  const Rules changed = bfloat.with_conditional("LeakyReLU", "act_type", {"elu", "selu"});
  EXPECT_EQ(changed.classify("elu"), kFloat);
  EXPECT_EQ(changed.classify("selu"), kFloat);
  EXPECT_EQ(changed.classify("leaky_relu"), kNeutral);
  EXPECT_TRUE(changed.conditionals().empty());
  EXPECT_EQ(half.classify("LeakyReLU"), kConditional);
}

TEST(Rules, AConditionThatCannotBeIsAnError) {
  EXPECT_THAT(error_of([] { half.with_conditional("Activation", "act_type", {"swish"}); }),
              HasSubstr("'Activation' has no act_type 'swish'; expected one of relu"));
  EXPECT_THAT(error_of([] { half.with_conditional("Activation", "type", {"relu"}); }),
              HasSubstr("decided by 'act_type'"));
  EXPECT_THAT(error_of([] { half.with_conditional("gelu", "approximate", {}); }),
              HasSubstr("no value"));
  EXPECT_THAT(error_of([] { half.with_conditional("gelu", "", {"tanh"}); }), HasSubstr("no name"));
  EXPECT_THAT(error_of([] { half.with("gelu", kConditional); }), HasSubstr("with_conditional"));
}

TEST(Rules, AConditionAndAClassForOneOperatorContradict) {
  EXPECT_THAT(
      error_of([] { half.with("gelu", kLow).with_conditional("gelu", "approximate", {"tanh"}); }),
      HasSubstr("in two classes"));
}

TEST(Rules, OneNameForDifferentClassesGivesTheOneThatCasts) {
  EXPECT_EQ(half.classify("add"), kPromote) << "add.Tensor promotes, add.Scalar has one tensor";
  EXPECT_EQ(half.classify("norm"), kFloat);
  EXPECT_EQ(half.classify("relu"), kNeutral);
  EXPECT_THAT(half.why("add"), AllOf(HasSubstr("add.Scalar: "), HasSubstr("\nadd.Tensor: ")));
}

}  // namespace
}  // namespace mezzo
