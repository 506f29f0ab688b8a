#include <gmock/gmock.h>

#include "core/raise.h"

namespace mezzo {
namespace {

TEST(Raise, PutsThePlaceBeforeTheParts) {
  try {
    raise<ConfigError>("level", "unknown opt level '", "O9", "'; expected one of ", 4, " levels");
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& e) {
    EXPECT_STREQ(e.what(), "[level] unknown opt level 'O9'; expected one of 4 levels");
  }
}

TEST(Raise, BothChildrenAreErrors) {
  EXPECT_THROW(raise<ConfigError>("a", "b"), Error);
  EXPECT_THROW(raise<UnsupportedError>("a", "b"), Error);
  EXPECT_THROW(raise("a", "b"), std::runtime_error);
}

}  // namespace
}  // namespace mezzo
