#include "support/compare.h"

#include <gmock/gmock.h>
#include <mezzo/error.h>

namespace examples {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kKnown{"O0", "O1", "O3", "O3+bn"};
const std::vector<std::string> kAll{"O0", "O1"};

TEST(ParseLevels, SplitsAtCommas) {
  EXPECT_THAT(parse_levels("O3+bn,O0", kAll, kKnown), ElementsAre("O3+bn", "O0"));
  EXPECT_THAT(parse_levels("all", kAll, kKnown), ElementsAre("O0", "O1"));
}

TEST(ParseLevels, SaysThatItIsTheLetter) {
  try {
    parse_levels("O0,01", kAll, kKnown);
    FAIL();
  } catch (const mezzo::ConfigError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "unknown level '01' (the letter O, not zero); expected some of O0, O1, O3, O3+bn"));
  }
}

TEST(ParseLevels, RefusesNothingAndTwice) {
  EXPECT_THROW(parse_levels("", kAll, kKnown), mezzo::ConfigError);
  EXPECT_THROW(parse_levels("O0,,O1", kAll, kKnown), mezzo::ConfigError);
  EXPECT_THROW(parse_levels("O0,O0", kAll, kKnown), mezzo::ConfigError);
}

}  // namespace
}  // namespace examples
