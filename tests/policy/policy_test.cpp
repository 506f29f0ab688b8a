#include "mezzo/policy.h"

#include <gmock/gmock.h>

#include <array>
#include <sstream>

#include "mezzo/error.h"
#include "operators/operators.h"

namespace mezzo {
namespace {

using enum CastClass;
using testing::HasSubstr;

TEST(Policy, TheDefaultsAreForHalf) {
  EXPECT_EQ(Policy::defaults().low(), at::kHalf);
  EXPECT_EQ(Policy::defaults(at::kBFloat16).low(), at::kBFloat16);
  EXPECT_EQ(Policy::defaults().classify("linear"), kLow);
  EXPECT_EQ(Policy::defaults().classify("aten::softmax"), kFloat);
  EXPECT_EQ(Policy::defaults().classify("elu"), kFloat);
  EXPECT_EQ(Policy::defaults(at::kBFloat16).classify("elu"), kNeutral);
}

TEST(Policy, OtherTypesHaveNone) {
  for (const auto type : {at::kFloat, at::kDouble, at::kInt, at::ScalarType::Undefined}) {
    EXPECT_THROW(Policy::defaults(type), ConfigError) << type;
  }
}

TEST(Policy, EveryListedOperatorHasAReason) {
  const Policy policy = Policy::defaults();
  for (const Operator& op : operators()) EXPECT_FALSE(policy.why(op.name).empty()) << op.name;
}

TEST(Policy, IsAValue) {
  const Policy before = Policy::defaults();
  const Policy after = before.with("softmax", kLow);
  EXPECT_EQ(before.classify("softmax"), kFloat);
  EXPECT_EQ(after.classify("softmax"), kLow);
}

TEST(Policy, AnOperatorThatNobodyListsCanBeNamed) {
  EXPECT_EQ(Policy::defaults().classify("silu"), kNeutral);
  EXPECT_EQ(Policy::defaults().with("silu", kFloat).classify("aten::silu"), kFloat);
  EXPECT_EQ(Policy::defaults().classify("silu"), kNeutral);
}

TEST(Policy, AnOperatorThatDoesNotExistIsAnError) {
  EXPECT_THROW(Policy::defaults().with("my_ops::nothing", kLow), ConfigError);
  EXPECT_THROW(Policy::defaults().classify("softmx"), ConfigError);
}

TEST(Policy, AConditionNeedsAnArgumentOfTheOperator) {
  const Policy policy = Policy::defaults().with_conditional("gelu", "approximate", {"tanh"});
  EXPECT_EQ(policy.classify("gelu"), kConditional);
  try {
    Policy::defaults().with_conditional("gelu", "aproximate", {"tanh"});
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("'gelu' has no argument 'aproximate'; it has self, "
                                    "approximate"));
  }
}

TEST(Policy, AConditionNeedsAnArgumentThatCanBeWrittenDown) {
  for (const auto& [op, argument] :
       {std::array{"gelu", "self"}, std::array{"conv2d.default", "stride"},
        std::array{"linear.default", "bias"}, std::array{"zeros_like", "layout"}}) {
    try {
      Policy::defaults().with_conditional(op, argument, {"1"});
      FAIL() << "nothing was thrown for " << op;
    } catch (const ConfigError& e) {
      EXPECT_THAT(e.what(), HasSubstr("the argument '" + std::string(argument) + "' is a "));
    }
  }
  for (const auto& [op, argument] :
       {std::array{"conv2d.default", "groups"}, std::array{"conv2d.padding", "padding"},
        std::array{"sum", "dtype"}, std::array{"add.Tensor", "alpha"},
        std::array{"amax", "keepdim"}, std::array{"elu", "alpha"}}) {
    EXPECT_NO_THROW(Policy::defaults().with_conditional(op, argument, {"1"})) << op;
  }
}

TEST(Policy, GoesThroughAFile) {
  const Policy policy = Policy::defaults(at::kBFloat16)
                            .with("softmax", kLow)
                            .with("silu", kFloat)
                            .with("Convolution", kFloat)
                            .with_conditional("gelu", "approximate", {"tanh"});
  std::stringstream file;
  policy.to_toml(file);
  const Policy again = Policy::from_toml(file, "saved.toml");
  EXPECT_EQ(again.low(), at::kBFloat16);
  for (const Operator& op : operators()) {
    EXPECT_EQ(again.classify(op.name), policy.classify(op.name)) << op.name;
  }
  EXPECT_EQ(again.classify("silu"), kFloat);
}

TEST(Policy, AFileWithAMistakeNamesTheLine) {
  std::istringstream file("dtype = \"float16\"\n[operators]\nlow = [\"softmx\"]\n");
  try {
    Policy::from_toml(file, "mine.toml");
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("[mine.toml] line 3: unknown operator 'softmx'"));
  }
}

TEST(Policy, WithoutBansRunsInFloatWhatItBannedAndChangesNothingElse) {
  const Policy banning = Policy::defaults(at::kBFloat16)
                             .with("softmax", CastClass::kBanned)
                             .with("softmax.int", CastClass::kLow)
                             .with("relu", CastClass::kFloat)
                             .with_conditional("gelu", "approximate", {"tanh"});
  const Policy allowing = banning.without_bans();
  EXPECT_EQ(banning.classify("softmax.Dimname"), CastClass::kBanned);
  EXPECT_EQ(allowing.classify("softmax.Dimname"), CastClass::kFloat);
  EXPECT_EQ(allowing.classify("softmax.int"), CastClass::kLow) << "the narrower name still decides";
  EXPECT_EQ(allowing.classify("relu"), CastClass::kFloat);
  EXPECT_EQ(allowing.classify("gelu"), CastClass::kConditional);
  EXPECT_EQ(allowing.low(), at::kBFloat16);
  std::ostringstream written;
  allowing.to_toml(written);
  EXPECT_EQ(written.str().find("banned"), std::string::npos);
}

}  // namespace
}  // namespace mezzo
