#include "kernels/kernel_set.h"

#include <gmock/gmock.h>

#include "mezzo/error.h"

namespace mezzo::kernels {
namespace {

TEST(KernelSet, TheSlowestIsTheBaselineAndTheFastestIsInForce) {
  ASSERT_FALSE(usable_kernel_sets().empty());
  EXPECT_STREQ(usable_kernel_sets().front()->name, "baseline");
  EXPECT_EQ(kernels().name, usable_kernel_sets().back()->name);
}

TEST(KernelSet, CanBeForcedByName) {
  choose_kernel_set("baseline");
  EXPECT_STREQ(kernels().name, "baseline");
  choose_kernel_set(usable_kernel_sets().back()->name);
  EXPECT_STREQ(kernels().name, usable_kernel_sets().back()->name);
}

TEST(KernelSet, AnUnknownNameIsAnErrorThatListsTheOthers) {
  try {
    choose_kernel_set("sse9");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'sse9'"));
    EXPECT_THAT(error.what(), testing::HasSubstr("expected one of baseline"));
  }
}

TEST(KernelSet, NoFunctionIsMissing) {
  for (const KernelSet* set : usable_kernel_sets()) {
    EXPECT_NE(set->all_finite, nullptr);
    EXPECT_NE(set->max_magnitude, nullptr);
    EXPECT_NE(set->square_sum, nullptr);
    EXPECT_NE(set->scale, nullptr);
    EXPECT_NE(set->axpby, nullptr);
    EXPECT_NE(set->copy, nullptr);
    EXPECT_NE(set->copy_as, nullptr);
    EXPECT_NE(set->adam, nullptr);
    EXPECT_NE(set->sgd, nullptr);
    EXPECT_NE(set->adagrad, nullptr);
    EXPECT_NE(set->lamb_moments, nullptr);
    EXPECT_NE(set->lamb_apply, nullptr);
    EXPECT_NE(set->novograd, nullptr);
  }
}

}  // namespace
}  // namespace mezzo::kernels
