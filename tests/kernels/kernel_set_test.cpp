#include "kernels/kernel_set.h"

#include <gmock/gmock.h>

#include <array>
#include <bit>

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
  // Every member is a pointer, so that a new one is looked at without being named here.
  using Pointers = std::array<const void*, sizeof(KernelSet) / sizeof(void*)>;
  static_assert(sizeof(Pointers) == sizeof(KernelSet));
  for (const KernelSet* set : usable_kernel_sets()) {
    const auto pointers = std::bit_cast<Pointers>(*set);
    EXPECT_GE(pointers.size(), 20U);
    for (std::size_t i = 0; i < pointers.size(); ++i)
      EXPECT_NE(pointers[i], nullptr) << set->name << ", member " << i;
  }
}

}  // namespace
}  // namespace mezzo::kernels
