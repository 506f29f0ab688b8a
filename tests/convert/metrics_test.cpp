// How an output of a result differs from the original's.
#include "convert/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace mezzo::convert {
namespace {

Array floats_of(const std::vector<float>& values, std::vector<std::int64_t> dims) {
  Array array;
  array.element = Element::kFloat;
  array.dims = std::move(dims);
  array.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return array;
}

TEST(Metrics, OfOneOutputFollowTheirDefinitions) {
  const Array reference = floats_of({3, -4, 1, 2}, {2, 2});
  const OutputError error = compare_outputs("y", reference, floats_of({3, -4, 2.5F, 2}, {2, 2}));
  EXPECT_DOUBLE_EQ(error.max_absolute, 1.5);
  EXPECT_DOUBLE_EQ(error.relative_to_range, 1.5 / 4);
  EXPECT_DOUBLE_EQ(error.sqnr_db, 10 * std::log10(30 / 2.25));
  EXPECT_DOUBLE_EQ(error.cosine, 31.5 / std::sqrt(30 * 35.25));
  EXPECT_DOUBLE_EQ(error.top1_agreement, 0.5);
  EXPECT_TRUE(error.finite && error.same_shape);
}

// More or fewer detections are no infinity.
TEST(Metrics, AnotherShapeIsSaidAsSuch) {
  const Array reference = floats_of({1, 2}, {2});
  const OutputError error = compare_outputs("y", reference, floats_of({1, 2, 3}, {3}));
  EXPECT_FALSE(error.same_shape);
  EXPECT_TRUE(error.finite);
  EXPECT_TRUE(std::isinf(error.relative_to_range));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(compare_outputs("y", reference, floats_of({1, infinity}, {1, 2})).finite);
  EXPECT_FALSE(compare_outputs("y", reference, floats_of({1, infinity}, {2})).finite);
  EXPECT_FALSE(worse(error, compare_outputs("y", reference, reference)).same_shape);
}

}  // namespace
}  // namespace mezzo::convert
