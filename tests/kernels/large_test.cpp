// More than 2^31 elements, in the smallest memory that crosses the limit: two bytes each, and what
// is only read is never touched, so that the system gives one page of zeros for all of it.
#include <gmock/gmock.h>

#include <cstdlib>
#include <memory>

#include "kernels/multi_tensor.h"

namespace mezzo::kernels {
namespace {

constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 3;
constexpr std::uint16_t kHalfInfinity = 0x7c00;
constexpr std::uint16_t kHalfOne = 0x3c00;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Halves = std::unique_ptr<std::uint16_t[], Free>;

Halves zeros() {
  return Halves(static_cast<std::uint16_t*>(
      std::calloc(static_cast<std::size_t>(kCount), sizeof(std::uint16_t))));
}

TEST(LargeSlow, TheLastElementIsLookedAtAndSummed) {
  const Halves memory = zeros();
  if (memory == nullptr) GTEST_SKIP() << "no 4.3 GB of address space";
  const OneWorker one;
  Lists lists(one);
  const Input in{memory.get(), DType::kFloat16, kCount};
  EXPECT_TRUE(lists.all_finite({&in, 1}));
  memory[kCount - 1] = kHalfOne;
  EXPECT_EQ(lists.norm({&in, 1}, Norm::kTwo), 1);
  memory[kCount - 1] = kHalfInfinity;
  EXPECT_FALSE(lists.all_finite({&in, 1}));
}

TEST(LargeSlow, AStepReachesTheLastElement) {
  const Halves weights = zeros();
  const Halves grads = zeros();
  if (weights == nullptr || grads == nullptr) GTEST_SKIP() << "no 8.6 GB of address space";
  for (const std::int64_t i : {std::int64_t{0}, kCount / 2, kCount - 1}) grads[i] = kHalfOne;
  StepRow row;
  row.param = weights.get();
  row.grad = grads.get();
  row.count = kCount;
  row.param_dtype = row.grad_dtype = DType::kFloat16;
  SgdScalars<double> sgd{};
  sgd.lr = -1;
  sgd.grad_scale = 1;
  const OneWorker one;
  Lists(one).sgd({&row, 1}, {&sgd, 1}, {});
  for (const std::int64_t i : {std::int64_t{0}, kCount / 2, kCount - 1}) {
    EXPECT_EQ(weights[i], kHalfOne) << i;
  }
  EXPECT_EQ(weights[kCount - 2], 0);
}

}  // namespace
}  // namespace mezzo::kernels
