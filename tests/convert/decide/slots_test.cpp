#include "convert/decide/slots.h"

#include <gtest/gtest.h>

namespace mezzo::convert {
namespace {

TEST(Slots, WhereThereIsNoneNothingIsAskedAndNothingLost) {
  Slots slots;
  slots.pin(slots.add(), Label::kHigh, Level::kValidity, "a reason");
  slots.pin(kNoSlot, Label::kLow, Level::kName, "nobody's");
  slots.settle();
  EXPECT_EQ(slots.pin_of(kNoSlot), nullptr);
  EXPECT_EQ(slots.overruled(kNoSlot), nullptr);
}

TEST(Slots, TheStrongestPinHoldsAndTellsWhatItOverruled) {
  Slots slots;
  const Slot a = slots.add();
  const Slot b = slots.add();
  slots.unite(a, b);
  slots.pin(a, Label::kLow, Level::kList, "listed");
  slots.pin(b, Label::kHigh, Level::kNumeric, "out of range");
  slots.settle();
  ASSERT_NE(slots.pin_of(a), nullptr);
  EXPECT_EQ(slots.pin_of(a)->why, "out of range");
  ASSERT_NE(slots.overruled(b), nullptr);
  EXPECT_EQ(slots.overruled(b)->why, "listed");
}

}  // namespace
}  // namespace mezzo::convert
