// Recomputed parts against the same parts kept: values and gradients to the bit.
#include "mezzo/recompute.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

namespace mezzo {
namespace {

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int width = 8)
      : first(register_module("first", torch::nn::Linear(width, 2 * width))),
        second(register_module("second", torch::nn::Linear(2 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) { return x + second(torch::gelu(first(x))); }
  torch::nn::Linear first, second;
};
TORCH_MODULE(Block);

using Tensors = std::vector<at::Tensor>;

void expect_same(const Tensors& got, const Tensors& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), wanted[i].defined()) << "gradient " << i;
    EXPECT_TRUE(!got[i].defined() || got[i].equal(wanted[i])) << "gradient " << i;
  }
}

/// Gradients of what `run` returns with respect to the tensors.
template <typename Run>
Tensors gradients(const Run& run, const Tensors& of) {
  return torch::autograd::grad({run()}, of, {}, {}, false, /*allow_unused=*/true);
}

Tensors with(const at::Tensor& x, const torch::nn::Module& module) {
  Tensors all{x};
  for (const at::Tensor& parameter : module.parameters()) all.push_back(parameter);
  return all;
}

at::Tensor some_input() {
  return torch::randn({5, 8}).requires_grad_();
}

TEST(Recompute, ModulesAndLambdasHaveTheGradientsOfThePlainCall) {
  Block block;
  const at::Tensor x = some_input();
  const Tensors all = with(x, *block);
  const Tensors plain = gradients([&] { return block(x).square().sum(); }, all);
  expect_same(gradients([&] { return recompute(block, x).square().sum(); }, all), plain);
  expect_same(gradients([&] { return recompute(block.ptr(), x).square().sum(); }, all), plain);
  const auto call = [&](const at::Tensor& a) { return block(a); };
  expect_same(gradients([&] { return recompute(call, x).square().sum(); }, all), plain);
  const auto captured = [&] { return recompute([&] { return block(x); }).square().sum(); };
  expect_same(gradients(captured, all), plain);
}

TEST(Recompute, InputsWithAHistoryAndWeightsUsedOnBothSides) {
  Block block;
  const at::Tensor x = some_input();
  const Tensors all = with(x, *block);
  // Twice, so that sums have two terms: their order does not matter.
  const Tensors plain = gradients([&] { return block(block(x).tanh()).sum(); }, all);
  expect_same(gradients([&] { return recompute(block, block(x).tanh()).sum(); }, all), plain);
  expect_same(gradients([&] { return block(recompute(block, x).tanh()).sum(); }, all), plain);
}

TEST(Recompute, WhatAFunctionCapturesWithAHistoryCountsOnce) {
  const at::Tensor w = torch::randn({8}).requires_grad_();
  const at::Tensor x = some_input();
  const auto run = [&](bool again) {
    const at::Tensor h = (w * 2).exp();
    const auto part = [h, w](const at::Tensor& a) { return a * h + a * w; };
    return (again ? recompute(part, x) : part(x)).square().sum();
  };
  expect_same(gradients([&] { return run(true); }, {x, w}),
              gradients([&] { return run(false); }, {x, w}));
}

TEST(Recompute, SeveralOutputsAndArgumentsThatAreNoTensors) {
  const at::Tensor x = some_input();
  const at::Tensor y = torch::randn({5, 8}).requires_grad_();
  const auto part = [](const at::Tensor& a, double factor, const Tensors& list,
                       const std::optional<at::Tensor>& none, const std::string& name) {
    EXPECT_EQ(name, "part");
    EXPECT_FALSE(none.has_value());
    return std::make_tuple((a * factor).exp(), std::vector<at::Tensor>{list[0] * a, a.argmax()}, 7);
  };
  const auto run = [&](bool again) {
    const std::optional<at::Tensor> none;
    const auto [first, rest, number] =
        again ? recompute(part, x, 0.5, Tensors{y}, none, std::string("part"))
              : part(x, 0.5, {y}, none, "part");
    EXPECT_EQ(number, 7);
    EXPECT_FALSE(rest[1].requires_grad());
    return (first * rest[0]).sum() + rest[1];
  };
  expect_same(gradients([&] { return run(true); }, {x, y}),
              gradients([&] { return run(false); }, {x, y}));
}

TEST(Recompute, OutputsThatAreNotUsedAndOutputsThatAreInputs) {
  Block block;
  const at::Tensor x = some_input();
  const Tensors all = with(x, *block);
  const auto part = [&](const at::Tensor& a) { return std::make_pair(block(a), a); };
  const auto first = [&](bool again) {
    return (again ? recompute(part, x).first : part(x).first).sum();
  };
  expect_same(gradients([&] { return first(true); }, all),
              gradients([&] { return first(false); }, all));
  const auto second = [&](bool again) {
    return (again ? recompute(part, x).second : part(x).second).square().sum();
  };
  expect_same(gradients([&] { return second(true); }, {x}),
              gradients([&] { return second(false); }, {x}));
}

TEST(Recompute, Nests) {
  Block outer, inner;
  const at::Tensor x = some_input();
  Tensors all = with(x, *outer);
  for (const at::Tensor& parameter : inner->parameters()) all.push_back(parameter);
  const auto run = [&](bool again) {
    const auto part = [&outer, &inner, again](const at::Tensor& a) {
      const at::Tensor h = outer(a);
      return again ? recompute([&inner](const at::Tensor& b) { return recompute(inner, b); }, h)
                   : inner(h);
    };
    return (again ? recompute(part, x) : part(x)).square().sum();
  };
  expect_same(gradients([&] { return run(true); }, all),
              gradients([&] { return run(false); }, all));
}

TEST(Recompute, BackwardFillsTheGradientsOfLeavesOnceAndHooksSeeThem) {
  Block block;
  const at::Tensor x = some_input();
  int calls = 0;
  block->first->weight.register_hook([&](const at::Tensor&) { ++calls; });
  recompute(block, x).square().sum().backward();
  const at::Tensor got = block->first->weight.grad().clone();
  EXPECT_EQ(calls, 1);
  block->zero_grad();
  block(x).square().sum().backward();
  EXPECT_TRUE(got.equal(block->first->weight.grad()));
}

TEST(Recompute, GraphsThatAreRetainedRunAgain) {
  Block block;
  const at::Tensor x = some_input();
  const at::Tensor loss = recompute(block, x).square().sum();
  const Tensors once = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true);
  expect_same(torch::autograd::grad({loss}, {x}), once);
  EXPECT_THROW(torch::autograd::grad({loss}, {x}), std::exception);
}

TEST(Recompute, GradientPenaltiesGoThroughItAndThroughNestedOnes) {
  Block block;
  const at::Tensor w = torch::randn({8}).requires_grad_();
  const at::Tensor x = some_input();
  Tensors all = with(x, *block);
  all.push_back(w);
  const auto run = [&](int depth) {
    const at::Tensor h = (x * w).tanh();
    const auto part = [&block, w](const at::Tensor& a) { return block(a) * w; };
    const auto nested = [part](const at::Tensor& a) { return recompute(part, a); };
    const at::Tensor y = depth == 0   ? part(h)
                         : depth == 1 ? recompute(part, h)
                                      : recompute(nested, h);
    const at::Tensor slope = torch::autograd::grad({y.square().sum()}, {x}, {}, true, true)[0];
    return slope.square().sum() + y.sum();
  };
  const Tensors plain = gradients([&] { return run(0); }, all);
  for (const int depth : {1, 2}) {
    const Tensors got = gradients([&] { return run(depth); }, all);
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_TRUE(got[i].allclose(plain[i], 1e-5, 1e-6)) << depth << " deep, gradient " << i;
  }
}

TEST(Recompute, BackwardOnAnotherThread) {
  Block block;
  const at::Tensor x = some_input();
  const Tensors all = with(x, *block);
  const Tensors plain = gradients([&] { return block(x * 2).sum(); }, all);
  const at::Tensor loss = recompute(block, x * 2).sum();
  Tensors got;
  std::thread([&] { got = torch::autograd::grad({loss}, all); }).join();
  expect_same(got, plain);
}

TEST(Recompute, WithoutGradientsItIsThePlainCall) {
  Block block;
  const at::Tensor x = torch::randn({5, 8});
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(recompute(block, x).requires_grad());
  }
  const at::Tensor doubled = recompute([](const at::Tensor& a) { return a * 2; }, x);
  EXPECT_FALSE(doubled.requires_grad());
  EXPECT_TRUE(doubled.equal(x * 2));
}

TEST(RecomputeSequential, IsTheSequence) {
  torch::nn::Sequential layers;
  for (int i = 0; i < 7; ++i) layers->push_back(Block());
  const at::Tensor x = some_input();
  const Tensors all = with(x, *layers);
  const Tensors plain = gradients([&] { return layers->forward(x).square().sum(); }, all);
  for (const int segments : {1, 2, 3, 7}) {
    const auto run = [&] { return recompute_sequential(layers, segments, x).square().sum(); };
    expect_same(gradients(run, all), plain);
  }
}

}  // namespace
}  // namespace mezzo
