// Sums of many terms are made in float and rounded once, forward and backward, whatever the types
// of a network are: 4,096 contributions of 1 are 4,096. In their own type bfloat16 stops at 256 and
// float16 at 2,048.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "casting/scope.h"
#include "mezzo/containers.h"
#include "mezzo/hardware.h"

namespace mezzo::casting {
namespace {

namespace F = torch::nn::functional;

constexpr std::int64_t kMany = 4096;

using Tensors = std::vector<at::Tensor>;

/// A function of these arguments of which one element of a gradient, or of the result, is a sum of
/// kMany ones.
struct Case {
  std::string name;
  Tensors arguments;
  std::function<at::Tensor(const Tensors&)> call;
  bool in_result = false;
};

at::Tensor ones(std::vector<std::int64_t> sizes) {
  return torch::ones(sizes);
}

at::Tensor first_place() {
  return torch::zeros({kMany}, at::kLong);
}

/// An image whose largest value every window of 64 x 64 sees.
at::Tensor peak() {
  at::Tensor image = torch::zeros({1, 1, 128, 128});
  image[0][0][64][64] = 1;
  return image;
}

at::Tensor peak_in_space() {
  at::Tensor space = torch::zeros({1, 1, 33, 33, 33});
  space[0][0][16][16][16] = 1;
  return space;
}

std::vector<Case> picks() {
  const at::Tensor place = first_place();
  return {
      {"embedding", {ones({4, 3})}, [=](auto& x) { return at::embedding(x[0], place); }},
      {"embedding, sparse",
       {ones({4, 3})},
       [=](auto& x) { return at::embedding(x[0], place, -1, false, /*sparse=*/true); }},
      {"embedding_bag",
       {ones({4, 3})},
       [=](auto& x) { return std::get<0>(at::embedding_bag(x[0], place, torch::arange(kMany))); }},
      {"embedding_bag of the largest",
       {ones({4, 3})},
       [=](auto& x) {
         return std::get<0>(at::embedding_bag(x[0], place, torch::arange(kMany), false, 2));
       }},
      {"embedding_bag with weights",
       {ones({4, 3}), ones({kMany})},
       [=](auto& x) {
         return std::get<0>(
             at::embedding_bag(x[0], place, torch::arange(kMany), false, 0, false, x[1]));
       }},
      {"index", {ones({4, 3})}, [=](auto& x) { return x[0].index({place}); }},
      {"take", {ones({4, 3})}, [=](auto& x) { return x[0].take(place); }},
      {"gather", {ones({4, 1})}, [=](auto& x) { return x[0].gather(0, place.unsqueeze(1)); }},
      {"index_select of one dimension",
       {ones({4})},
       [=](auto& x) { return x[0].index_select(0, place); }},
      {"index_select of a matrix",
       {ones({4, 3})},
       [=](auto& x) { return x[0].index_select(0, place); }},
      {"index_select in the middle",
       {ones({2, 4, 3})},
       [=](auto& x) { return x[0].index_select(1, place); }},
      {"repeat_interleave",
       {ones({3})},
       [=](auto& x) {
         return x[0].repeat_interleave(torch::tensor({kMany, 1L, 1L}));
       }},
      {"unfold", {ones({2 * kMany})}, [=](auto& x) { return x[0].unfold(0, kMany, 1); }},
      {"as_strided",
       {ones({2 * kMany})},
       [=](auto& x) {
         return x[0].as_strided({kMany, kMany}, {1, 1});
       }},
      {"im2col",
       {ones({1, 1, 128, 128})},
       [=](auto& x) { return F::unfold(x[0], F::UnfoldFuncOptions(64)); }},
      {"expand",
       {ones({1, 3})},
       [=](auto& x) {
         return x[0].expand({kMany, 3});
       }},
      {"cat", {ones({3})}, [=](auto& x) { return torch::cat(Tensors(kMany, x[0])); }},
      {"stack", {ones({3})}, [=](auto& x) { return torch::stack(Tensors(kMany, x[0])); }},
      {"selected again and again",
       {ones({4, 3})},
       [=](auto& x) {
         Tensors rows;
         for (std::int64_t i = 0; i < kMany; ++i) rows.push_back(x[0][0]);
         return torch::stack(rows);
       }},
  };
}

std::vector<Case> pools_and_pads() {
  const auto pad = [](std::vector<std::int64_t> sizes) {
    return [=](const Tensors& x) {
      return F::pad(x[0], F::PadFuncOptions(sizes).mode(torch::kReplicate));
    };
  };
  return {
      {"replication of 1 dimension", {ones({1, 1, 4})}, pad({kMany - 1, 0})},
      {"replication of 2 dimensions", {ones({1, 1, 4, 4})}, pad({63, 0, 63, 0})},
      {"replication of 3 dimensions", {ones({1, 1, 2, 2, 2})}, pad({15, 0, 15, 0, 15, 0})},
      {"adaptive_avg_pool1d",
       {ones({1, 1, 2})},
       [](auto& x) { return at::adaptive_avg_pool1d(x[0], {2 * kMany}); }},
      {"adaptive_avg_pool2d",
       {ones({1, 1, 2, 2})},
       [](auto& x) {
         return at::adaptive_avg_pool2d(x[0], {128, 128});
       }},
      {"adaptive_avg_pool3d",
       {ones({1, 1, 2, 2, 2})},
       [](auto& x) {
         return at::adaptive_avg_pool3d(x[0], {32, 32, 32});
       }},
      {"adaptive_max_pool1d",
       {ones({1, 1, 2})},
       [](auto& x) { return std::get<0>(at::adaptive_max_pool1d(x[0], {2 * kMany})); }},
      {"adaptive_max_pool2d",
       {ones({1, 1, 2, 2})},
       [](auto& x) {
         return std::get<0>(at::adaptive_max_pool2d(x[0], {128, 128}));
       }},
      {"adaptive_max_pool3d",
       {ones({1, 1, 2, 2, 2})},
       [](auto& x) {
         return std::get<0>(at::adaptive_max_pool3d(x[0], {32, 32, 32}));
       }},
      {"max_pool1d",
       {peak().reshape({1, 1, 128 * 128})},
       [](auto& x) { return at::max_pool1d(x[0], kMany, 1); }},
      {"max_pool2d",
       {peak()},
       [](auto& x) {
         return at::max_pool2d(x[0], {64, 64}, {1, 1});
       }},
      {"max_pool3d",
       {peak_in_space()},
       [](auto& x) {
         return at::max_pool3d(x[0], {16, 16, 16}, {1, 1, 1});
       }},
      {"avg_pool1d",
       {ones({1, 1, 2 * kMany})},
       [](auto& x) { return at::avg_pool1d(x[0], kMany, 1) * kMany; }},
      {"avg_pool2d",
       {ones({1, 1, 128, 128})},
       [](auto& x) {
         return at::avg_pool2d(x[0], {64, 64}, {1, 1}, 0, false, true, 1);
       }},
      {"avg_pool2d, channels last",
       {ones({1, 8, 128, 128}).contiguous(at::MemoryFormat::ChannelsLast)},
       [](auto& x) {
         return at::avg_pool2d(x[0], {64, 64}, {1, 1}, 0, false, true, 1);
       }},
      {"avg_pool3d",
       {ones({1, 1, 32, 32, 32})},
       [](auto& x) {
         return at::avg_pool3d(x[0], {16, 16, 16}, {1, 1, 1}, 0, false, true, 1);
       }},
      {"interpolate by areas",
       {ones({1, 1, 2, 2})},
       [](auto& x) {
         return F::interpolate(x[0], F::InterpolateFuncOptions()
                                         .size(std::vector<std::int64_t>{128, 128})
                                         .mode(torch::kArea));
       }},
      {"grid_sample",
       {ones({1, 1, 4, 4}), torch::full({1, 64, 64, 2}, 0.25F)},
       [](auto& x) {
         return F::grid_sample(x[0], x[1].detach(),
                               F::GridSampleFuncOptions().align_corners(false));
       }},
  };
}

std::vector<Case> sums() {
  const at::Tensor place = first_place();
  const at::Tensor column = place.unsqueeze(1);
  return {
      {"index_add of one dimension",
       {torch::zeros({4}), ones({kMany})},
       [=](auto& x) { return x[0].index_add(0, place, x[1]); },
       true},
      {"index_add of a matrix",
       {torch::zeros({4, 3}), ones({kMany, 3})},
       [=](auto& x) { return x[0].index_add(0, place, x[1]); },
       true},
      {"index_add in the middle",
       {torch::zeros({2, 4, 3}), ones({2, kMany, 3})},
       [=](auto& x) { return x[0].index_add(1, place, x[1]); },
       true},
      {"index_add in place",
       {torch::zeros({4}), ones({kMany})},
       [=](auto& x) { return x[0].clone().index_add_(0, place, x[1]); },
       true},
      {"index_put",
       {torch::zeros({4, 3}), ones({kMany, 3})},
       [=](auto& x) { return x[0].index_put({place}, x[1], /*accumulate=*/true); },
       true},
      {"index_put in place",
       {torch::zeros({4, 3}), ones({kMany, 3})},
       [=](auto& x) { return x[0].clone().index_put_({place}, x[1], /*accumulate=*/true); },
       true},
      {"put",
       {torch::zeros({4, 3}), ones({kMany})},
       [=](auto& x) { return x[0].put(place, x[1], /*accumulate=*/true); },
       true},
      {"scatter_add",
       {torch::zeros({4, 1}), ones({kMany, 1})},
       [=](auto& x) { return x[0].scatter_add(0, column, x[1]); },
       true},
      {"scatter_reduce",
       {torch::zeros({4, 1}), ones({kMany, 1})},
       [=](auto& x) { return x[0].scatter_reduce(0, column, x[1], "sum"); },
       true},
      {"index_reduce, whose mean counts",
       {torch::zeros({4, 3}), ones({kMany, 3})},
       [=](auto& x) {
         return x[0].index_reduce(0, place, x[1], "mean", /*include_self=*/false) * kMany;
       },
       true},
      {"segment_reduce",
       {ones({kMany, 3})},
       [](auto& x) { return at::segment_reduce(x[0], "sum", torch::tensor({kMany})); },
       true},
      {"col2im",
       {ones({1, 64 * 64, 65 * 65})},
       [](auto& x) {
         return F::fold(x[0], F::FoldFuncOptions({128, 128}, {64, 64}));
       },
       true},
      {"histc", {ones({kMany})}, [](auto& x) { return at::histc(x[0].detach(), 2, 0, 2); }, true},
      {"addbmm",
       {torch::zeros({1, 1}), ones({kMany, 1, 1}), ones({kMany, 1, 1})},
       [](auto& x) { return at::addbmm(x[0], x[1], x[2]); },
       true},
      {"addbmm in place",
       {torch::zeros({1, 1}), ones({kMany, 1, 1}), ones({kMany, 1, 1})},
       [](auto& x) { return x[0].clone().addbmm_(x[1], x[2]); },
       true},
      {"bmm",
       {ones({1, 1, kMany}), ones({1, kMany, 1})},
       [](auto& x) { return at::bmm(x[0], x[1]); },
       true},
      {"a bias",
       {torch::zeros({1}), ones({kMany, 1}), ones({1, 1})},
       [](auto& x) { return at::addmm(x[0], x[1], x[2]); }},
      {"a broadcast", {ones({3}), ones({kMany, 3})}, [](auto& x) { return x[0] + x[1]; }},
  };
}

struct Setting {
  at::ScalarType low;
  ComputeMode computed;
  Mode mode;
};

class SumsInFloat : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override { set_compute_mode(GetParam().low, GetParam().computed); }
  void TearDown() override { set_compute_mode(GetParam().low, ComputeMode::kAuto); }

  void expect_many(const std::vector<Case>& cases) const {
    for (const Case& each : cases) {
      Tensors leaves;
      for (const at::Tensor& argument : each.arguments)
        leaves.push_back(argument.detach().to(GetParam().low).requires_grad_());
      EXPECT_EQ(sum_of(each, leaves), kMany) << each.name;
    }
  }

 private:
  /// Through other tensors, so that the leaves' accumulators are not all that adds up.
  double sum_of(const Case& each, const Tensors& leaves) const {
    at::Tensor result;
    {
      const Scope scope(Policy::defaults(GetParam().low), GetParam().mode);
      Tensors arguments;
      for (const at::Tensor& leaf : leaves) arguments.push_back(leaf.clone());
      result = each.call(arguments);
      if (each.in_result) return result.to(at::kDouble).max().item<double>();
      // As a model's outputs leave.
      result = amp::TensorCast{at::kFloat, false}(result);
    }
    result.sum().backward();
    return leaves[0].grad().to_dense().to(at::kDouble).max().item<double>();
  }
};

INSTANTIATE_TEST_SUITE_P(
    Casting, SumsInFloat,
    testing::Values(Setting{at::kHalf, ComputeMode::kNative, Mode::kOperators},
                    Setting{at::kHalf, ComputeMode::kNative, Mode::kWholeModel},
                    Setting{at::kHalf, ComputeMode::kEmulated, Mode::kOperators},
                    Setting{at::kHalf, ComputeMode::kEmulated, Mode::kWholeModel},
                    Setting{at::kBFloat16, ComputeMode::kNative, Mode::kOperators},
                    Setting{at::kBFloat16, ComputeMode::kNative, Mode::kWholeModel},
                    Setting{at::kBFloat16, ComputeMode::kEmulated, Mode::kOperators},
                    Setting{at::kBFloat16, ComputeMode::kEmulated, Mode::kWholeModel}));

TEST_P(SumsInFloat, OfWhatIsPickedManyTimes) {
  expect_many(picks());
}

TEST_P(SumsInFloat, OfWindowsAndCopiedEdges) {
  expect_many(pools_and_pads());
}

TEST_P(SumsInFloat, ThatAreResults) {
  expect_many(sums());
}

TEST_P(SumsInFloat, ShowTheProgramGradientsOfTheTypeOfTheirTensors) {
  const at::Tensor table = torch::ones({4, 3}, GetParam().low).requires_grad_();
  at::Tensor picked;
  at::Tensor result;
  std::vector<at::ScalarType> seen;
  {
    const Scope scope(Policy::defaults(GetParam().low), GetParam().mode);
    picked = at::embedding(table, first_place());
    picked.register_hook(
        [&](const at::Tensor& gradient) { seen.push_back(gradient.scalar_type()); });
    result = amp::TensorCast{at::kFloat, false}(picked);
  }
  const auto gradients =
      torch::autograd::grad({result.sum()}, {picked, table}, {}, /*retain_graph=*/true);
  EXPECT_EQ(gradients[0].scalar_type(), GetParam().low);
  EXPECT_EQ(gradients[1].scalar_type(), GetParam().low);
  EXPECT_EQ(gradients[1].max().item<double>(), kMany);
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.front(), GetParam().low);
}

TEST_P(SumsInFloat, KeepTheTypeOfTheNetwork) {
  const Scope scope(Policy::defaults(GetParam().low), GetParam().mode);
  const at::Tensor x = torch::ones({4, 3}, GetParam().low).requires_grad_();
  const at::Tensor places = torch::zeros({2}, at::kLong);
  EXPECT_EQ(x.index({places}).scalar_type(), GetParam().low);
  EXPECT_EQ(x.index_add(0, places, x.slice(0, 0, 2), 2).scalar_type(), GetParam().low);
  EXPECT_EQ(at::embedding(x, places).scalar_type(), GetParam().low);
  EXPECT_EQ(F::pad(x.unsqueeze(0), F::PadFuncOptions({9, 9}).mode(torch::kReplicate)).scalar_type(),
            GetParam().low);
}

}  // namespace
}  // namespace mezzo::casting
