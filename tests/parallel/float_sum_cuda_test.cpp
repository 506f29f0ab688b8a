// Sums of what ranks gave by the CUDA kernels' lists: the bits of the processor's loops.
#include <torch/torch.h>

#include "parallel/float_sum.h"
#include "support/cuda_places.h"

namespace mezzo::parallel {
namespace {

class FloatSum : public testing_cuda::AtPlaces {};
INSTANTIATE_TEST_SUITE_P(Distributed, FloatSum,
                         testing::Values(testing_cuda::Place::kEmulation,
                                         testing_cuda::Place::kGpu),
                         [](const auto& row) { return testing_cuda::name_of(row.param); });

TEST_P(FloatSum, GivesTheProcessorsBits) {
  torch::manual_seed(5);
  for (const auto type : {at::kHalf, at::kBFloat16, at::kFloat}) {
    for (const auto out_type : {at::kHalf, at::kBFloat16, at::kFloat}) {
      for (const std::int64_t ranks : {1, 2, 3, 5}) {
        for (const double factor : {1.0, 0.25, 1.0 / 3}) {
          const at::Tensor rows = torch::randn({ranks, 1003}).to(type);
          const at::Tensor here = torch::empty({1003}, out_type);
          sum_in_float(rows, here, factor);
          const testing_cuda::KernelsAt kernels(place());
          const at::Tensor there =
              torch::empty({1003}, at::TensorOptions(device()).dtype(out_type));
          sum_in_float(rows.to(device()), there, factor);
          EXPECT_TRUE(torch::equal(here, there.cpu()))
              << type << " to " << out_type << ", " << ranks << " ranks, factor " << factor;
        }
      }
    }
  }
}

TEST_P(FloatSum, WritesOverARow) {
  torch::manual_seed(6);
  for (const std::int64_t own : {0, 1, 2}) {
    const at::Tensor rows = torch::randn({3, 70}).to(at::kBFloat16);
    const at::Tensor expected = torch::empty({70}, at::kBFloat16);
    sum_in_float(rows, expected, 0.5);
    const testing_cuda::KernelsAt kernels(place());
    const at::Tensor there = rows.to(device()).clone();
    sum_in_float(there, there[own], 0.5);
    EXPECT_TRUE(torch::equal(there[own].cpu(), expected)) << own;
  }
}

}  // namespace
}  // namespace mezzo::parallel
