// A whole step captured once and replayed, on a GPU.
#include "kernels/cuda/device.h"

namespace mezzo::kernels::cuda {
namespace {

using namespace testing_support;

class CudaGraph : public OnCuda {};

TEST_F(CudaGraph, AReplayedStepChecksSkipsCountsAndMovesAsIfItWereCalled) {
  constexpr std::int64_t kCount = 20001;
  const Array start = Array::random(DType::kFloat32, kCount, 1);
  const Array grad = Array::random(DType::kFloat16, kCount, 2);
  const DeviceArray param(start);
  const DeviceArray called_param(start);
  const DeviceArray gradient(grad);
  const Array zeros(DType::kFloat32, kCount);
  const DeviceArray m(zeros), v(zeros), called_m(zeros), called_v(zeros);
  const DeviceNumber<std::int64_t> steps, called_steps;
  const DeviceNumber<float> found, inv_scale(0.5f);
  const AdamRecipe recipe{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  const StepFlags flags{found.data(), inv_scale.data(), nullptr};
  const Input in = gradient.in();
  StepRow row{param.data(),    gradient.data(), {m.data(), v.data(), nullptr},
              nullptr,         kCount,          DType::kFloat32,
              DType::kFloat16, CopyKind::kNone, 0};
  StepRow called = row;
  called.param = called_param.data();
  called.state[0] = called_m.data();
  called.state[1] = called_v.data();
  const RowState state{steps.data(), nullptr};
  const RowState called_state{called_steps.data(), nullptr};

  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  expect_done(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::unique_ptr<List, FreeList> check_list(cuda().make_list(0, nullptr));
  std::unique_ptr<List, FreeList> called_list(cuda().make_list(0, nullptr));
  // Kernels are loaded at their first launch, which a capture might refuse: one that moves nothing.
  const DeviceNumber<float> skips(1);
  expect(cuda().check(called_list.get(), &in, 1, skips.data(), stream));
  expect(cuda().adam(called_list.get(), &called, &called_state, 1, &recipe, 1,
                     {skips.data(), nullptr, nullptr}, stream));
  expect_done(cudaDeviceSynchronize());  // this stream does not wait for the copies of another
  expect_done(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  expect(cuda().check(check_list.get(), &in, 1, found.data(), stream));
  expect(cuda().adam(list(), &row, &state, 1, &recipe, 1, flags, stream));
  expect_done(cudaStreamEndCapture(stream, &graph));
  expect_done(cudaGraphInstantiate(&replay, graph, 0));
  for (int i = 0; i < 5; ++i) {
    expect_done(cudaGraphLaunch(replay, stream));
    expect(cuda().adam(called_list.get(), &called, &called_state, 1, &recipe, 1,
                       {nullptr, inv_scale.data(), nullptr}, stream));
  }
  expect_done(cudaStreamSynchronize(stream));
  EXPECT_EQ(steps.value(), 5);
  EXPECT_EQ(param.read(), called_param.read());

  const std::uint16_t infinity = 0x7c00;
  expect_done(cudaMemcpy(static_cast<std::uint16_t*>(gradient.data()) + 777, &infinity, 2,
                         cudaMemcpyHostToDevice));
  expect_done(cudaDeviceSynchronize());
  expect_done(cudaGraphLaunch(replay, stream));
  expect_done(cudaStreamSynchronize(stream));
  EXPECT_EQ(found.value(), 1);
  EXPECT_EQ(steps.value(), 5);
  EXPECT_EQ(param.read(), called_param.read());
  expect_done(cudaGraphExecDestroy(replay));
  expect_done(cudaGraphDestroy(graph));
  expect_done(cudaStreamDestroy(stream));
}

}  // namespace
}  // namespace mezzo::kernels::cuda
