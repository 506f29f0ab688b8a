// Peak memory of a deep network against the schedule of square roots.
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "mezzo/recompute.h"

namespace mezzo {
namespace {

/// Bytes on this thread while it lives.
class Memory {
 public:
  struct Reporter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void* /*block*/, std::int64_t size, std::size_t /*allocated*/,
                           std::size_t /*reserved*/, c10::Device /*device*/) override {
      now += size;
      peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::int64_t now = 0, peak = 0;
  };
  std::int64_t peak() const { return reporter_->peak; }

 private:
  std::shared_ptr<Reporter> reporter_ = std::make_shared<Reporter>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, reporter_};
};

constexpr int kLayers = 64;
constexpr std::int64_t kRows = 512, kWidth = 64;
constexpr std::int64_t kActivation = kRows * kWidth * 4;

/// Saves one activation, its output; the input of its product is the output of the layer before.
struct DeepLayerImpl : torch::nn::Module {
  DeepLayerImpl()
      : fc(register_module(
            "fc", torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)))) {}
  at::Tensor forward(const at::Tensor& x) { return fc(x).tanh(); }
  torch::nn::Linear fc;
};
TORCH_MODULE(DeepLayer);

torch::nn::Sequential deep_network() {
  torch::nn::Sequential layers;
  for (int i = 0; i < kLayers; ++i) layers->push_back(DeepLayer());
  for (at::Tensor& parameter : layers->parameters())
    parameter.mutable_grad() = torch::zeros_like(parameter);
  return layers;
}

template <typename Run>
std::int64_t peak_of(const Run& run) {
  const Memory memory;
  run().sum().backward();
  return memory.peak();
}

TEST(RecomputeMemory, ASixtyFourLayerNetworkKeepsToTheScheduleOfSquareRoots) {
  torch::nn::Sequential layers = deep_network();
  const at::Tensor x = torch::randn({kRows, kWidth});
  const std::int64_t plain = peak_of([&] { return layers->forward(x); });
  EXPECT_GE(plain, kLayers * kActivation);
  // Inputs of seven segments, eight layers of one, and what a layer's backward pass works on: the
  // gradient that comes, the one of its tanh and the one that goes.
  const std::int64_t schedule = (7 + 8 + 3) * kActivation;
  const std::int64_t peak = peak_of([&] { return recompute_sequential(layers, 8, x); });
  EXPECT_LE(peak, schedule + schedule / 10);
}

TEST(RecomputeMemory, NestedSegmentsKeepLess) {
  torch::nn::Sequential layers = deep_network();
  const at::Tensor x = torch::randn({kRows, kWidth});
  const auto quarter = [&](int begin) {
    torch::nn::Sequential part;
    for (int i = begin; i < begin + 16; ++i) part->push_back(layers->ptr<DeepLayerImpl>(i));
    return part;
  };
  const auto run = [&] {
    at::Tensor y = x;
    for (int begin = 0; begin < kLayers; begin += 16) {
      y = recompute([&, part = quarter(begin)](
                        const at::Tensor& a) { return recompute_sequential(part, 4, a); },
                    y);
    }
    return y;
  };
  // Inputs of four quarters and of three segments, and a segment's four layers.
  const std::int64_t schedule = (4 + 3 + 4 + 4) * kActivation;
  EXPECT_LE(peak_of(run), schedule + schedule / 10);
}

TEST(RecomputeMemory, WhatIsSavedIsFreedWithTheGraph) {
  torch::nn::Linear layer(kWidth, kWidth);
  const Memory memory;
  const auto probe = std::make_shared<int>(0);
  {
    const at::Tensor y =
        recompute([&, probe](const at::Tensor& a) { return layer(a); }, torch::randn({4, kWidth}));
    EXPECT_GT(probe.use_count(), 1);
    y.sum().backward();
    EXPECT_EQ(probe.use_count(), 1) << "the backward pass frees the function and its inputs";
  }
  {
    const at::Tensor y =
        recompute([&, probe](const at::Tensor& a) { return layer(a); }, torch::randn({4, kWidth}));
  }
  EXPECT_EQ(probe.use_count(), 1) << "a graph that is dropped frees them, too";
}

}  // namespace
}  // namespace mezzo
