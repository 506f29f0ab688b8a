// The texts that mean the same value of an argument.
#include "operators/condition.h"

#include <gtest/gtest.h>

#include <vector>

namespace mezzo {
namespace {

bool means(std::string_view argument, const std::string& value) {
  return is_condition_value(argument, std::vector<std::string>{"something else", value});
}

TEST(Conditions, NumbersAreComparedAsNumbers) {
  EXPECT_TRUE(means("1", "1.0"));
  EXPECT_TRUE(means("1e-05", "0.00001"));
  EXPECT_TRUE(means("-1", "-1.00"));
  EXPECT_TRUE(means("0.333999991", "0.334"));
  EXPECT_FALSE(means("1", "1.001"));
  EXPECT_FALSE(means("1", "1x"));
  EXPECT_FALSE(means("1", ""));
}

TEST(Conditions, TruthValuesAndNoneHaveNoCase) {
  EXPECT_TRUE(means("true", "True"));
  EXPECT_TRUE(means("False", "false"));
  EXPECT_TRUE(means("none", "None"));
  EXPECT_FALSE(means("true", "false"));
}

TEST(Conditions, ListsHaveNoBlanks) {
  EXPECT_TRUE(means("(1, 1)", "[1,1]"));
  EXPECT_FALSE(means("(1, 1)", "(1, 2)"));
}

TEST(Conditions, OtherTextsAreComparedLetterByLetter) {
  EXPECT_TRUE(means("tanh", "tanh"));
  EXPECT_FALSE(means("tanh", "Tanh"));
  EXPECT_FALSE(is_condition_value("tanh", {}));
}

}  // namespace
}  // namespace mezzo
