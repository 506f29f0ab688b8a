// Values that ranks computed, compared with a reference.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>

namespace mezzo::parallel::testing_ranks {

/// `expected` is in double; the tolerance is relative to its largest element, and to 1.
inline void expect_near(const at::Tensor& got, const at::Tensor& expected, double tolerance,
                        const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  if (got.numel() == 0) return;
  const double scale = 1 + expected.abs().max().item<double>();
  const double error =
      (got.detach().to(at::kDouble) - expected.detach()).abs().max().item<double>();
  ASSERT_LE(error, tolerance * scale) << what;
}

}  // namespace mezzo::parallel::testing_ranks
