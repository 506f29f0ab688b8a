#include <gmock/gmock.h>

#include <set>

#include "mezzo/error.h"
#include "mezzo/policy.h"
#include "operators/operators.h"

namespace mezzo {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsSupersetOf;

TEST(Lists, PutEveryOperatorIntoOne) {
  for (const auto low : {at::kHalf, at::kBFloat16}) {
    std::multiset<std::string> all;
    for (const auto& list : {list_lp16_ops(low), list_fp32_ops(low), list_lp16_fp32_ops(low),
                             list_widest_type_cast(low)}) {
      all.insert(list.begin(), list.end());
    }
    EXPECT_EQ(all.size(), operators().size());
    EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), operators().size());
  }
}

TEST(Lists, AreThoseOfTheDefaultPolicy) {
  EXPECT_THAT(list_lp16_ops(at::kHalf), IsSupersetOf({"conv2d", "linear", "mm", "lstm.input"}));
  EXPECT_THAT(list_fp32_ops(at::kHalf), IsSupersetOf({"exp", "softmax.int", "mse_loss", "elu"}));
  EXPECT_THAT(list_fp32_ops(at::kBFloat16), testing::Not(Contains("elu")));
  EXPECT_THAT(list_lp16_fp32_ops(at::kHalf), IsSupersetOf({"relu", "batch_norm", "max_pool2d"}));
  EXPECT_THAT(list_widest_type_cast(at::kHalf), IsSupersetOf({"cat", "stack", "addcdiv"}));
}

TEST(Lists, NamesAreAcceptedByAPolicy) {
  const Policy policy = Policy::defaults();
  for (const std::string& op : list_fp32_ops(at::kHalf)) {
    EXPECT_EQ(policy.with(op, CastClass::kLow).classify(op), CastClass::kLow) << op;
  }
}

TEST(Lists, ConditionalOperatorsAreMxnets) {
  const auto half = list_conditional_fp32_ops(at::kHalf);
  ASSERT_EQ(half.size(), 2U);
  EXPECT_EQ(half[0].op, "Activation");
  EXPECT_EQ(half[0].argument, "act_type");
  EXPECT_THAT(half[0].values, ElementsAre("softrelu"));
  EXPECT_EQ(half[1].op, "LeakyReLU");
  EXPECT_THAT(half[1].values, ElementsAre("elu", "selu"));
  EXPECT_THAT(list_conditional_fp32_ops(at::kBFloat16).at(1).values, ElementsAre("selu"));
  for (const Conditional& rule : half) {
    EXPECT_NO_THROW(Policy::defaults().with_conditional(rule.op, rule.argument, rule.values));
  }
}

TEST(Lists, LossOutputsAreMxnets) {
  EXPECT_THAT(list_loss_output_functions(at::kHalf),
              ElementsAre("LinearRegressionOutput", "LogisticRegressionOutput",
                          "MAERegressionOutput", "SoftmaxOutput"));
}

TEST(Lists, BatchNormsKeepFloatParameters) {
  EXPECT_THAT(list_lp16_use_fp32_params(at::kBFloat16).at("batch_norm"),
              ElementsAre("weight", "bias", "running_mean", "running_var"));
  EXPECT_TRUE(list_lp16_use_fp32_params(at::kHalf).empty()) << "as in MXNet";
}

TEST(Lists, ExistForTheTwoLowTypesOnly) {
  EXPECT_THROW(list_lp16_ops(at::kFloat), ConfigError);
  EXPECT_THROW(list_fp32_ops(at::kDouble), ConfigError);
  EXPECT_THROW(list_lp16_fp32_ops(at::kInt), ConfigError);
  EXPECT_THROW(list_widest_type_cast(at::kFloat), ConfigError);
  EXPECT_THROW(list_conditional_fp32_ops(at::kFloat), ConfigError);
  EXPECT_THROW(list_loss_output_functions(at::kFloat), ConfigError);
  EXPECT_THROW(list_lp16_use_fp32_params(at::kFloat), ConfigError);
}

}  // namespace
}  // namespace mezzo
