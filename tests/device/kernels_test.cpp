// Our kernels on a device that a host does not wait for: what proves them, and lists on several
// streams.
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "bridge/device.h"
#include "bridge/multi_tensor.h"
#include "bridge/proofs.h"
#include "bridge/tensors.h"
#include "mezzo/hardware.h"
#include "pretend/device.h"

namespace mezzo::bridge {
namespace {

using pretend::device;

class KernelsOnDevice : public testing::Test {
 protected:
  void TearDown() override {
    pretend::finish();
    pretend::seed(0);
  }
};

TEST_F(KernelsOnDevice, AreProvenOnceAndWaitForNothingAfterwards) {
  prove_kernels({at::zeros({1}, device())});
  for (const Family family : kFamilies) {
    EXPECT_EQ(proofs_on(device())->difference(device(), family), "") << name_of(family);
  }
  const pretend::Watch watch;
  for (const Family family : kFamilies) EXPECT_TRUE(has_kernels(device(), family));
  EXPECT_EQ(watch.counts().waits, 0);
  EXPECT_EQ(watch.counts().launches, 0);
}

TEST_F(KernelsOnDevice, AreNotUsedInACaptureThatComesBeforeTheirProof) {
  const c10::Stream side = pretend::new_stream(1);
  const c10::StreamGuard guard(side);
  pretend::Graph graph;
  graph.begin(side);
  for (const Family family : kFamilies) EXPECT_FALSE(has_kernels(device(1), family));
  graph.end();
  EXPECT_TRUE(has_kernels(device(1), Family::kNorms));
  graph.begin(side);
  EXPECT_TRUE(has_kernels(device(1), Family::kNorms));
  graph.end();
}

TEST_F(KernelsOnDevice, AreListedWithTheirProofs) {
  const std::vector<KernelProof> proofs = kernel_proofs();
  ASSERT_EQ(proofs.size(), 2 * std::size(kFamilies));
  for (const KernelProof& proof : proofs) {
    EXPECT_TRUE(proof.holds) << proof.device << ", " << proof.family << ": " << proof.difference;
  }
  EXPECT_EQ(proofs.front().device, "cuda:0");
  EXPECT_EQ(proofs.front().family, "steps");
}

// The device's kernels cannot write a flag of the host; theirs is joined with it.
TEST_F(KernelsOnDevice, RaiseAFlagThatTheHostHolds) {
  const at::Tensor finite = at::full({9000}, 2.0, device());
  const at::Tensor infinite = at::full({9000}, INFINITY, device());
  const at::Tensor out = at::empty_like(finite);
  at::Tensor flag = at::zeros({1}, at::kCPU);
  for (int i = 0; i < 3; ++i) scale("test", {finite}, {out}, 3, flag);
  EXPECT_EQ(flag.item<float>(), 0);
  axpby("test", {finite}, {finite}, {out}, 1, 2, flag);
  EXPECT_EQ(flag.item<float>(), 0);
  scale("test", {infinite}, {out}, 3, flag);
  EXPECT_EQ(flag.item<float>(), 1);
  scale("test", {finite}, {out}, 3, flag);
  EXPECT_EQ(flag.item<float>(), 1) << "a flag stays up";
}

/// A list that is called on two streams.
class ListOnStreams : public KernelsOnDevice {
 protected:
  void SetUp() override {
    cuda_ = cuda_kernels(device(), Family::kLists);
    ASSERT_NE(cuda_, nullptr);
    for (int i = 0; i < 3; ++i) x_.push_back(at::full({9000}, i + 1.0, device()));
    for (const at::Tensor& x : x_) in_.push_back(input_of(x, DType::kFloat32));
    pretend::finish();
  }
  /// A norm on a stream, by a list that has descriptors and scratch memory.
  at::Tensor norm_on(const c10::Stream& stream, const CudaList& list) {
    const c10::StreamGuard guard(stream);
    at::Tensor total = at::zeros({}, at::TensorOptions(device()).dtype(at::kDouble));
    EXPECT_TRUE(cuda_->norm(list.get(), in_.data(), 3, false, total.mutable_data_ptr<double>(),
                            nullptr, nullptr, current_stream(device())));
    return total;
  }
  static double expected() { return std::sqrt(9000.0 * (1 + 4 + 9)); }

  const kernels::cuda::Interface* cuda_ = nullptr;
  std::vector<at::Tensor> x_;
  std::vector<kernels::Input> in_;
};

// Nothing runs before somebody waits for it: of the first stream only what the second waits for.
TEST_F(ListOnStreams, AStreamFindsWhatAnotherHasWritten) {
  const CudaList list = make_cuda_list(*cuda_, device());
  const c10::Stream one = pretend::new_stream();
  const c10::Stream other = pretend::new_stream();
  const at::Tensor first = norm_on(one, list);
  const at::Tensor second = norm_on(other, list);
  const c10::StreamGuard guard(other);
  EXPECT_DOUBLE_EQ(second.item<double>(), expected());
  pretend::finish();
  EXPECT_DOUBLE_EQ(first.item<double>(), expected());
}

TEST_F(ListOnStreams, ACaptureOnAnotherStreamWaitsForNothingOutside) {
  const CudaList list = make_cuda_list(*cuda_, device());
  const c10::Stream one = pretend::new_stream();
  const c10::Stream other = pretend::new_stream();
  norm_on(one, list);
  pretend::Graph graph;
  at::Tensor captured;
  {
    const c10::StreamGuard guard(other);
    graph.begin(other);
    captured = norm_on(other, list);
    graph.end();
    graph.replay();
  }
  const at::Tensor called = norm_on(one, list);
  pretend::finish();
  EXPECT_DOUBLE_EQ(captured.item<double>(), expected());
  EXPECT_DOUBLE_EQ(called.item<double>(), expected());
}

}  // namespace
}  // namespace mezzo::bridge
