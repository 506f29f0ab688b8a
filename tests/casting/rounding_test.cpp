#include "casting/rounding.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "casting/shadows.h"

namespace mezzo::casting {
namespace {

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() &&
         torch::equal(a.contiguous().view(torch::kInt), b.contiguous().view(torch::kInt));
}

struct Rounding : testing::TestWithParam<at::ScalarType> {
  Rounding() { torch::manual_seed(3); }
  static at::Tensor expected(const at::Tensor& values) {
    return values.to(GetParam()).to(at::kFloat);
  }
};

INSTANTIATE_TEST_SUITE_P(LowTypes, Rounding, testing::Values(at::kHalf, at::kBFloat16));

TEST_P(Rounding, WritesWhatACastThereAndBackGives) {
  for (const std::int64_t size : {0, 1, 7, 4099, 65536, 65537, 400'003}) {
    const at::Tensor values = torch::randn({size}) * 1000;
    const at::Tensor before = values.clone();
    const at::Tensor out = torch::full({size}, 7.0);
    round_into(out, values, GetParam());
    EXPECT_TRUE(same_bits(out, expected(values))) << size;
    EXPECT_TRUE(same_bits(values, before)) << size;
    round_into(values, values, GetParam());
    EXPECT_TRUE(same_bits(values, out)) << size << ", in place";
  }
}

TEST_P(Rounding, TakesEveryLayout) {
  const at::Tensor values = torch::randn({6, 40, 30, 20});
  const at::Tensor wanted = expected(values);
  const at::Tensor channels_last = values.contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor with_gaps = torch::zeros({6, 40, 30, 41}).slice(3, 1, 41, 2);
  const at::Tensor at_an_offset = torch::zeros({7, 40, 30, 20}).slice(0, 1);
  for (const at::Tensor& in : {values, channels_last}) {
    for (const at::Tensor& out : {torch::zeros_like(values), torch::zeros_like(channels_last),
                                  with_gaps.zero_(), at_an_offset.zero_()}) {
      round_into(out, in, GetParam());
      EXPECT_TRUE(same_bits(out, wanted)) << in.strides() << " to " << out.strides();
    }
  }
}

TEST_P(Rounding, KeepsWhatIsNotFiniteAndWhatIsTiny) {
  using Limits = std::numeric_limits<float>;
  const at::Tensor values = torch::tensor({Limits::infinity(), -Limits::infinity(), 65519.9F,
                                           65520.F, Limits::max(), 6e-8F, 2e-8F, -1e-40F, -0.F});
  const at::Tensor out = torch::zeros_like(values);
  round_into(out, values, GetParam());
  EXPECT_TRUE(same_bits(out, expected(values)));
  round_into(out, torch::full_like(out, std::nan("")), GetParam());
  EXPECT_TRUE(out.isnan().all().item<bool>());
}

TEST_P(Rounding, WidensValuesOfTheLowTypeAndRoundsThoseOfTheOther) {
  const at::Tensor values = torch::randn({70'001});
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor out = torch::zeros_like(values);
    round_into(out, values.to(type), GetParam());
    EXPECT_TRUE(same_bits(out, expected(values.to(type))));
  }
}

TEST_P(Rounding, CountsAsAChangeOfItsResultAlone) {
  const at::Tensor values = torch::randn({3});
  const at::Tensor out = torch::zeros({3});
  const auto of_values = values._version();
  const auto of_out = out._version();
  round_into(out, values, GetParam());
  EXPECT_EQ(values._version(), of_values);
  EXPECT_GT(out._version(), of_out);
}

TEST_P(Rounding, OfAGradientTakesItsOwnMemoryWhereNobodyElseSeesIt) {
  const at::Tensor values = torch::randn({50, 40});
  const auto keeps_memory = [&](const at::Tensor& gradient) {
    const void* const memory = gradient.data_ptr();
    const at::Tensor wanted = expected(gradient);
    const at::Tensor result = rounded_gradient(gradient, GetParam());
    EXPECT_TRUE(same_bits(result, wanted));
    return result.data_ptr() == memory;
  };
  EXPECT_TRUE(keeps_memory(values.clone()));
  // Views whose base nobody holds, as backward passes make them.
  at::Tensor view = values.clone();
  view = view.t();
  EXPECT_TRUE(keeps_memory(view));
  view = view.as_strided({2000}, {1});
  EXPECT_TRUE(keeps_memory(view));
}

TEST_P(Rounding, OfAGradientLeavesWhatOthersSee) {
  const at::Tensor values = torch::randn({50, 40});
  const at::Tensor before = values.clone();
  std::vector<float> buffer(2000, 0.1F);
  const std::vector<float> buffer_before = buffer;
  const at::Tensor second = values;
  for (const at::Tensor& gradient :
       {second, values.detach(), values.t(), values.slice(0, 10, 20), values.expand({2, 50, 40}),
        torch::from_blob(buffer.data(), {50, 40})}) {
    const at::Tensor wanted = expected(gradient);
    EXPECT_TRUE(same_bits(rounded_gradient(gradient, GetParam()), wanted));
    EXPECT_TRUE(same_bits(values, before));
    EXPECT_EQ(buffer, buffer_before);
  }
}

TEST_P(Rounding, OfAGradientIsRecordedWhereAGraphIsWanted) {
  const at::Tensor gradient = torch::randn({5}).requires_grad_();
  const at::Tensor result = rounded_gradient(gradient * 1, GetParam());
  ASSERT_TRUE(result.requires_grad());
  result.sum().backward();
  EXPECT_TRUE(torch::equal(gradient.grad(), torch::ones({5})));
}

// Keeps what a node gave, and what it was then.
struct Keeper : torch::autograd::FunctionPostHook {
  struct Kept {
    at::Tensor gradient;
    at::Tensor value;
  };
  explicit Keeper(std::vector<Kept>& into) : kept(into) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    for (const at::Tensor& output : outputs)
      if (output.defined()) kept.push_back({output, output.clone()});
    return outputs;
  }
  std::vector<Kept>& kept;
};

TEST_P(Shadows, AGradientThatAHookKeepsStaysAsItIs) {
  const at::Tensor weight = torch::randn({30, 20}).requires_grad_();
  at::Tensor y;
  {
    const amp::Autocast scope(Policy::defaults(at::kBFloat16));
    y = torch::mm(torch::randn({4, 30}), weight);
  }
  std::vector<Keeper::Kept> kept;
  auto node = y.grad_fn();
  while (node->name() != "MmBackward0") node = node->next_edge(0).function;
  node->add_post_hook(std::make_unique<Keeper>(kept));
  (y * torch::randn({4, 20})).sum().backward();
  ASSERT_EQ(kept.size(), 1);
  EXPECT_TRUE(torch::equal(kept[0].gradient, kept[0].value));
  EXPECT_TRUE(torch::equal(weight.grad(), kept[0].value.to(at::kBFloat16).to(at::kFloat)));
}

}  // namespace
}  // namespace mezzo::casting
