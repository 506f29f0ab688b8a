#include "mezzo/hardware.h"

#include <gmock/gmock.h>

#include "mezzo/error.h"

namespace mezzo {
namespace {

TEST(Hardware, KernelSetsGoFromSlowestToFastestAndTheFastestIsInForce) {
  ASSERT_FALSE(kernel_sets().empty());
  EXPECT_EQ(kernel_sets().front(), "baseline");
  EXPECT_EQ(kernel_set(), kernel_sets().back());
}

TEST(Hardware, AKernelSetIsForcedByName) {
  for (const std::string& name : kernel_sets()) {
    set_kernel_set(name);
    EXPECT_EQ(kernel_set(), name);
  }
}

TEST(Hardware, AnUnknownKernelSetIsAnErrorAndChangesNothing) {
  EXPECT_THROW(set_kernel_set("mmx"), ConfigError);
  EXPECT_EQ(kernel_set(), kernel_sets().back());
}

}  // namespace
}  // namespace mezzo
