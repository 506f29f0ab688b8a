// A whole step under mixed precision as one CUDA graph: nothing in it waits for the device, which
// capturing would refuse, and a replay decides, counts and moves as a call does.
#include <ATen/ops/_amp_update_scale.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <cuda_runtime.h>

#include "mezzo/optim.h"
#include "optim/optimizer_kinds.h"
#include "optim/step_context.h"
#include "optim/trajectory.h"
#include "support/cuda_places.h"

namespace mezzo::optim {
namespace {

using namespace testing_support;

class CudaStepGraph : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (const std::string why = testing_cuda::why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};
INSTANTIATE_TEST_SUITE_P(Optim, CudaStepGraph, testing::ValuesIn(kinds()),
                         [](const auto& row) { return std::string(row.param.name); });

/// Parameters, an optimizer of theirs and the numbers of a loss scale, on the GPU.
struct Training {
  std::vector<at::Tensor> params;
  std::unique_ptr<FusedOptimizer> optimizer;
  at::Tensor found = torch::zeros({1}, torch::kCUDA);
  at::Tensor inv_scale = torch::full({1}, 0.5, torch::kCUDA);
  at::Tensor scale = torch::full({1}, 2.0, torch::kCUDA);
  at::Tensor growth = torch::zeros({1}, torch::TensorOptions(torch::kCUDA).dtype(torch::kInt));

  explicit Training(const Kind& kind) : params(make_parameters()) {
    for (at::Tensor& param : params) param = param.detach().cuda().requires_grad_(true);
    optimizer = kind.make(params);
    set_gradients(0);
  }
  // In the memory that is there already.
  void set_gradients(int step) {
    torch::manual_seed(static_cast<std::uint64_t>(step));
    for (const at::Tensor& param : params) {
      const at::Tensor grad = torch::empty(param.sizes()).normal_();
      if (!param.grad().defined()) param.mutable_grad() = torch::empty_like(param.detach());
      param.grad().copy_(grad);
    }
  }
  void step() {
    const at::NoGradGuard no_grad;
    found.zero_();
    step_checked(*optimizer, found, inv_scale);
    at::_amp_update_scale_(scale, growth, found, 2.0, 0.5, 3);
  }
};

TEST_P(CudaStepGraph, ReplaysCheckSkipCountMoveAndAdaptTheScale) {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  const c10::StreamGuard side(guard.getStreamFromGlobalPool(c10::Device(at::kCUDA, 0)));
  auto* stream = static_cast<cudaStream_t>(side.current_stream().native_handle());
  Training ours(GetParam());
  Training called(GetParam());
  ours.step();  // states, counters and descriptors are made
  called.step();

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ours.step();
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  EXPECT_TRUE(identical(ours.params, called.params)) << "capturing moves nothing";

  for (int step = 1; step < 9; ++step) {
    ours.set_gradients(step);
    called.set_gradients(step);
    if (step % 4 == 0) {
      ours.params[0].grad()[3][4] = INFINITY;
      called.params[0].grad()[3][4] = INFINITY;
    }
    ASSERT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
    called.step();
    EXPECT_TRUE(identical(ours.params, called.params)) << step;
    EXPECT_EQ(ours.scale.item<float>(), called.scale.item<float>()) << step;
    EXPECT_EQ(ours.growth.item<int>(), called.growth.item<int>()) << step;
    EXPECT_EQ(ours.found.item<float>(), step % 4 == 0 ? 1 : 0) << step;
  }
  EXPECT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST(CudaStepGraph, HoldsClippingListOperationsAndLARC) {
  if (const std::string why = testing_cuda::why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  const c10::StreamGuard side(guard.getStreamFromGlobalPool(c10::Device(at::kCUDA, 0)));
  auto* stream = static_cast<cudaStream_t>(side.current_stream().native_handle());
  const auto sgd = kinds()[1];
  Training ours(sgd);
  Training called(sgd);
  const auto step = [](Training& training) {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> grads;
    for (const at::Tensor& param : training.params) grads.push_back(param.grad());
    clip_grad_norm_(training.params, 0.5);
    multi_tensor_scale(grads, grads, 2, training.found);
    training.scale.copy_(multi_tensor_l2norm(grads).first);
    LARC(*training.optimizer).step();
  };
  step(ours);
  step(called);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  step(ours);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (int i = 1; i < 4; ++i) {
    ours.set_gradients(i);
    called.set_gradients(i);
    ASSERT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
    step(called);
    EXPECT_TRUE(identical(ours.params, called.params)) << i;
    EXPECT_EQ(ours.scale.item<float>(), called.scale.item<float>()) << i;
  }
  EXPECT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace
}  // namespace mezzo::optim
