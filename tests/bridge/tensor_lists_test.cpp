#include "mezzo/tensor_lists.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "mezzo/error.h"

namespace mezzo {
namespace {

std::vector<at::Tensor> make_list(at::ScalarType type) {
  torch::manual_seed(1);
  return {torch::randn({3, 5}).to(type),
          torch::randn({}).to(type),
          torch::randn({0, 2}).to(type),
          torch::randn({2, 8, 4, 4}).to(type).contiguous(at::MemoryFormat::ChannelsLast),
          torch::randn({7, 9}).to(type).t(),
          torch::randn({4, 6}).to(type).slice(1, 0, 6, 2)};
}

TEST(TensorLists, UnflattenGivesBackValuesAndLayout) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kLong}) {
    const auto list = make_list(type);
    const at::Tensor flat = flatten(list);
    EXPECT_EQ(flat.scalar_type(), type);
    EXPECT_EQ(flat.numel(), 15 + 1 + 0 + 256 + 63 + 12);
    const auto views = unflatten(flat, list);
    for (std::size_t i = 0; i < list.size(); ++i) {
      EXPECT_TRUE(torch::equal(views[i], list[i])) << i;
      if (i != 5) {
        EXPECT_EQ(views[i].strides(), list[i].strides()) << i;
      }
      EXPECT_TRUE(list[i].numel() == 0 || views[i].is_alias_of(flat));
    }
  }
}

TEST(TensorLists, ViewsOfAnotherTypeKeepTheLayout) {
  const auto list = make_list(at::kFloat);
  const auto views = unflatten(flatten(list).to(at::kHalf), list);
  EXPECT_TRUE(views[3].is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(TensorLists, GradientsFlowThroughBoth) {
  auto list = make_list(at::kDouble);
  for (at::Tensor& tensor : list) tensor.requires_grad_(true);
  const auto views = unflatten(flatten(list) * 2, list);
  at::Tensor sum = torch::zeros({}, at::kDouble);
  for (const at::Tensor& view : views) sum = sum + (view * view).sum();
  sum.backward();
  EXPECT_TRUE(torch::allclose(list[3].grad(), 8 * list[3].detach()));
  EXPECT_TRUE(torch::allclose(list[4].grad(), 8 * list[4].detach()));
}

TEST(TensorLists, BadListsAreErrorsThatNameTheTensor) {
  const auto message_of = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message_of([] {
                flatten({torch::ones({2}), torch::ones({2}, at::kHalf)});
              }),
              testing::HasSubstr("tensors[1] is Half [2]"));
  EXPECT_THAT(message_of([] { flatten({torch::eye(2).to_sparse()}); }),
              testing::HasSubstr("tensors[0]"));
  EXPECT_THAT(message_of([] {
                flatten({torch::ones({2}), at::Tensor()});
              }),
              testing::HasSubstr("tensors[1] is undefined"));
  EXPECT_THAT(message_of([] { unflatten(torch::ones({3}), {torch::ones({2})}); }),
              testing::HasSubstr("1-D tensor of 2 elements"));
  EXPECT_THAT(message_of([] {
                unflatten(torch::ones({1, 2}), {torch::ones({2})});
              }),
              testing::HasSubstr("1-D"));
  EXPECT_THAT(message_of([] { unflatten(torch::ones({9}), {torch::eye(3).to_sparse()}); }),
              testing::HasSubstr("like[0]"));
  EXPECT_THAT(message_of([] { unflatten(torch::ones({3}).to_sparse(), {torch::ones({3})}); }),
              testing::HasSubstr("expected a contiguous 1-D tensor of 3 elements"));
  EXPECT_EQ(flatten({}).numel(), 0);
  EXPECT_TRUE(unflatten(torch::empty({0}), {}).empty());
}

}  // namespace
}  // namespace mezzo
