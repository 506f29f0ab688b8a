// A defect that was found in Apex's layers, as a test that Mezzo has not got it. The number goes on
// from tests/amp/defects_test.cpp.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "mezzo/nn.h"

namespace mezzo::nn {
namespace {

/// Fills what the next allocations of these sizes will get again.
void soil_memory() {
  std::vector<at::Tensor> blocks;
  for (const std::int64_t size : {64, 96, 8, 12}) {
    for (int i = 0; i < 8; ++i) blocks.push_back(torch::full({size}, 1e30, at::kFloat));
  }
}

TEST(Defect, Number24DenseLayersStartWithWeights) {
  const auto check = [](const at::Tensor& parameter, std::int64_t in, const char* name) {
    const double most = 1 / std::sqrt(static_cast<double>(in));
    EXPECT_LE(parameter.abs().max().item<double>(), most + 1e-6) << name;
    EXPECT_GT(parameter.abs().max().item<double>(), most / 8) << name << " is all but zero";
  };
  for (int round = 0; round < 3; ++round) {
    soil_memory();
    torch::manual_seed(3);
    FusedDense one(8, 12);
    check(one->weight, 8, "weight");
    check(one->bias, 8, "bias");
    soil_memory();
    torch::manual_seed(3);
    EXPECT_TRUE(torch::equal(FusedDense(8, 12)->weight, one->weight)) << "not the seed decides";
    soil_memory();
    FusedDenseGeluDense two(8, 12, 8);
    check(two->weight1, 8, "weight1");
    check(two->bias1, 8, "bias1");
    check(two->weight2, 12, "weight2");
    check(two->bias2, 12, "bias2");
  }
}

}  // namespace
}  // namespace mezzo::nn
