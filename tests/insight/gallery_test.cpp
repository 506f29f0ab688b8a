// Every fault of the gallery is explained: operator, module, kind, and an advice that helps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "insight/gallery.h"

namespace mezzo::insight {
namespace {

std::vector<Fault> gallery() {
  std::vector<Fault> all;
  for (const auto& part :
       {overflows(), invalid_arguments(), derivatives(), data_and_weights(), layers(), rounding(),
        loops(), sums(), poles(), flat_places(), nested(), data_in_the_program(), forward_first(),
        at_the_edge(), weights_that_are_large()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

class Gallery : public testing::TestWithParam<Fault> {};

TEST_P(Gallery, IsExplainedAndMended) {
  const Fault& fault = GetParam();
  Scene scene(fault);
  ASSERT_TRUE(scene.step().skipped()) << "the fault itself is missing";
  const Explanation why = scene.explain();
  SCOPED_TRACE(why.to_text());
  EXPECT_TRUE(why.reproduced);
  EXPECT_EQ(to_string(why.cause), to_string(fault.cause));
  ASSERT_EQ(why.first.has_value(), !fault.op.empty());
  if (why.first) {
    EXPECT_EQ(why.first->name, fault.op);
    EXPECT_EQ(why.first->module, fault.module);
    EXPECT_EQ(why.first->backward, fault.backward);
  }
  if (!fault.parameter.empty()) {
    EXPECT_EQ(why.parameter, fault.parameter);
  }
  EXPECT_EQ(why.fails_in_float, fault.in_float);
  EXPECT_LE(why.evaluations, 12);
  ASSERT_FALSE(why.advice.empty());
  if (why.advice.size() > 1 && why.advice.front().loss_scale) {
    EXPECT_GE(*why.advice.front().loss_scale, 1) << "is not the best advice";
  }
  if (!fault.in_float) {
    const Advice& first = why.advice.front();
    EXPECT_TRUE(first.policy || first.loss_scale || !first.keep_float.empty()) << first.text;
  }
  for (const Advice& advice : why.advice) {
    const bool in_code = !advice.policy && !advice.loss_scale && advice.keep_float.empty();
    EXPECT_TRUE(in_code || advice.tried) << advice.text;
    EXPECT_FALSE(fault.in_float && advice.tried) << advice.text;
    if (in_code) continue;
    Scene mended(fault, advice);
    EXPECT_TRUE(mended.step().applied()) << advice.text;
  }
  if (!fault.mend) return;
  Fault changed = fault;
  fault.mend(changed);
  Scene mended(changed);
  EXPECT_TRUE(mended.step().applied()) << "with the program changed as the advice says";
}

TEST(GalleryItself, HoldsAHundredFaultsWhoseAdviceIsAppliedEach) {
  const std::vector<Fault> all = gallery();
  EXPECT_GE(all.size(), 100U);
  for (const Fault& fault : all) {
    if (fault.in_float) {
      EXPECT_TRUE(fault.mend) << fault.name << " fails in float: only the program can be mended";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, Gallery, testing::ValuesIn(gallery()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace mezzo::insight
