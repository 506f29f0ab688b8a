#include "core/glob.h"

#include <gmock/gmock.h>

#include <regex>

namespace mezzo {
namespace {

bool matches(const std::string& glob, const std::string& name) {
  return std::regex_match(name, std::regex(expression_of_glob(glob)));
}

TEST(Glob, StarIsAnyTextAndAQuestionMarkOneCharacter) {
  EXPECT_TRUE(matches("layer*.weight", "layer12.weight"));
  EXPECT_TRUE(matches("layer?.weight", "layer1.weight"));
  EXPECT_FALSE(matches("layer?.weight", "layer12.weight"));
  EXPECT_TRUE(matches("*", ""));
}

TEST(Glob, AllElseIsItself) {
  EXPECT_TRUE(matches("a.b(1)[2]{3}+/^$|\\", "a.b(1)[2]{3}+/^$|\\"));
  EXPECT_FALSE(matches("a.b", "axb"));
}

}  // namespace
}  // namespace mezzo
