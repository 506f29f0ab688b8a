// A check on other inputs finds what a trace lost, and says where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "messages.h"
#include "mezzo/deploy.h"
#include "mezzo/error.h"

namespace mezzo::deploy {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct BranchImpl : nn::Module {
  BranchImpl() { register_module("layer", layer); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = layer(x);
    return x.sum().item<double>() > 0 ? y.relu() : y.sigmoid();
  }
  nn::Linear layer{nn::Linear(3, 3)};
};
TORCH_MODULE(Branch);

TEST(TraceCheck, ControlFlowThatDependsOnDataIsFound) {
  Branch net;
  const TraceOptions options{.check_with = Examples{-torch::ones({2, 3})}};
  EXPECT_THAT(message_of([&] {
                trace(net, {torch::ones({2, 3})}, options);
              }),
              AllOf(HasSubstr("aten::relu after 'layer'"), HasSubstr("aten::sigmoid")));
  EXPECT_NO_THROW(trace(net, {torch::ones({2, 3})}, {.check_with = Examples{torch::ones({2, 3})}}));
}

struct FrozenImpl : nn::Module {
  FrozenImpl() { register_module("layer", layer); }
  at::Tensor forward(const at::Tensor& x) { return layer(x).view({x.size(0), 3, 2}); }
  nn::Linear layer{nn::Linear(3, 6)};
};
TORCH_MODULE(Frozen);

TEST(TraceCheck, AFrozenSizeIsFoundAndNamed) {
  Frozen net;
  const at::Tensor two = torch::ones({2, 3}), five = torch::ones({5, 3});
  EXPECT_THAT(message_of([&] { trace(net, {two}, {.check_with = Examples{five}}); }),
              AllOf(HasSubstr("aten::view after 'layer' was given 2 on the examples and 5"),
                    HasSubstr("dynamic_axes")));
  EXPECT_NO_THROW(trace(
      net, {two}, {.check_with = Examples{five}, .dynamic_axes = {{"input_0", {{0, "batch"}}}}}));
}

struct NoisyImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x + torch::rand_like(x); }
};
TORCH_MODULE(Noisy);

TEST(TraceCheck, ADifferenceOfNumbersIsAnError) {
  EXPECT_THAT(message_of([&] {
                trace(Noisy(), {torch::ones({3})}, {.check_with = Examples{torch::ones({3})}});
              }),
              HasSubstr("trace and network differ: output 0"));
}

}  // namespace
}  // namespace mezzo::deploy
