// A linear layer at the bfloat16 level, and what it must compute: shared by the tests of weights'
// copies.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "casting/weights.h"
#include "mezzo/autocast.h"
#include "mezzo/cast_counts.h"
#include "mezzo/hardware.h"

namespace mezzo::casting {

// Casts of weights that happen while the function runs.
template <typename F>
std::int64_t weight_casts(F function) {
  const std::int64_t before = cast_counts().weight_casts;
  function();
  return cast_counts().weight_casts - before;
}

struct Shadows : testing::TestWithParam<ComputeMode> {
  Shadows() {
    torch::manual_seed(1);
    set_compute_mode(at::kBFloat16, GetParam());
  }
  ~Shadows() override { set_compute_mode(at::kBFloat16, ComputeMode::kAuto); }

  at::Tensor forward() {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    return linear(x).to(at::kFloat);
  }
  // The layer's result with its weight as it is now, cast afresh.
  at::Tensor expected() {
    const amp::DisableCasts off;
    const auto round = [](const at::Tensor& t) {
      return t.detach().to(at::kBFloat16).to(at::kFloat);
    };
    return torch::addmm(round(linear->bias), round(x), round(linear->weight).t())
        .to(at::kBFloat16)
        .to(at::kFloat);
  }
  void expect_current() { EXPECT_TRUE(torch::allclose(forward(), expected(), 2e-2, 2e-2)); }

  torch::nn::Linear linear{6, 5};
  at::Tensor x = torch::randn({3, 6});
};

}  // namespace mezzo::casting
