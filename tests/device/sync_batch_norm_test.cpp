// Batch norm over ranks on a device: nothing waits for the host, and what ranks do wrong is said
// later.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "bridge/device.h"
#include "device/mirrored_ranks.h"
#include "mezzo/sync_batch_norm.h"

namespace mezzo::pretend {
namespace {

using parallel::ProcessGroup;
using parallel::SyncBatchNorm;
using parallel::SyncBatchNormOptions;
using testing::HasSubstr;

SyncBatchNorm norm_over(const ProcessGroup& group, std::optional<double> momentum = 0.1) {
  torch::manual_seed(2);
  SyncBatchNormOptions options;
  options.num_features = 4;
  options.momentum = momentum;
  options.process_group = group;
  SyncBatchNorm norm(options);
  norm->to(device());
  return norm;
}

// Against LibTorch's norm in double over what both ranks have.
void expect_norm_of_both(std::optional<double> momentum, const std::string& what) {
  SyncBatchNorm norm = norm_over(two_ranks(), momentum);
  torch::nn::BatchNorm2d whole(torch::nn::BatchNorm2dOptions(4).momentum(momentum));
  whole->to(at::kDouble);
  for (unsigned step = 0; step < 3; ++step) {
    torch::manual_seed(10 + step);
    const at::Tensor mine = torch::randn({2, 4, 3, 3}) * 3 + 5;
    const at::Tensor direction = torch::randn({2, 4, 3, 3});
    const at::Tensor here = mine.to(at::kDouble).requires_grad_(true);
    const at::Tensor others = mine.to(at::kDouble);
    const at::Tensor there = mine.to(device()).requires_grad_(true);
    const at::Tensor towards = direction.to(device());
    norm->zero_grad();
    whole->zero_grad();
    finish();
    at::Tensor y;
    {
      const Watch watch;
      y = norm->forward(there);
      (y * towards).sum().backward();
      expect_no_wait(watch, what + ", step " + std::to_string(step));
    }
    const at::Tensor expected = whole->forward(torch::cat({here, others}));
    (expected * torch::cat({direction, direction})).sum().backward();
    const auto expect_near = [&](const at::Tensor& got, const at::Tensor& wanted, const char* of) {
      EXPECT_TRUE(torch::allclose(got.cpu().to(at::kDouble), wanted, 1e-4, 1e-4))
          << what << ", step " << step << ", " << of << '\n'
          << got.cpu() << wanted;
    };
    expect_near(y.detach(), expected.detach().narrow(0, 0, 2), "result");
    expect_near(there.grad(), here.grad(), "gradient");
    expect_near(norm->weight.grad(), whole->weight.grad() / 2, "weight's gradient");
    expect_near(norm->running_mean, whole->running_mean, "running mean");
    expect_near(norm->running_var, whole->running_var, "running variance");
  }
}

class DeviceSyncBatchNorm : public testing::Test {
 protected:
  // Their first use in a process waits once: they prove themselves.
  void SetUp() override { EXPECT_TRUE(bridge::has_kernels(device(), bridge::Family::kBatchNorms)); }
  void TearDown() override {
    bridge::choose_usual_kernels(at::kCUDA);
    seed(0);
  }
};

TEST_F(DeviceSyncBatchNorm, IsThatOfBothRanksAndWaitsForNothing) {
  for (const std::uint64_t order : {0, 1, 2}) {
    seed(order);
    expect_norm_of_both(0.1, "our kernels");
    expect_norm_of_both(std::nullopt, "an average over all batches");
  }
}

TEST_F(DeviceSyncBatchNorm, WaitsForNothingWhereThereAreNoKernels) {
  bridge::choose_kernels(at::kCUDA, nullptr);
  expect_norm_of_both(0.1, "operators");
}

TEST_F(DeviceSyncBatchNorm, ASingleElementIsAnErrorOfTheNextCallAndMovesNothing) {
  SyncBatchNorm norm = norm_over(two_ranks(Other::kNothing));
  const at::Tensor before = norm->running_var.cpu().clone();
  EXPECT_NO_THROW(norm->forward(torch::full({1, 4}, 3.0, device())));
  finish();
  EXPECT_TRUE(torch::equal(norm->running_var.cpu(), before));
  EXPECT_EQ(norm->running_mean.abs().sum().item<float>(), 0);
  try {
    norm->forward(torch::randn({8, 4}, device()));
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("one element per channel"));
    EXPECT_THAT(error.what(), HasSubstr("[1, 4]"));
  }
  EXPECT_NO_THROW(norm->forward(torch::randn({8, 4}, device())));
}

TEST_F(DeviceSyncBatchNorm, ARankThatRecordsNothingIsNamedBeforeTheBackwardIfItIsKnown) {
  SyncBatchNorm norm = norm_over(two_ranks(Other::kNothing));
  const at::Tensor x = torch::randn({8, 4}, device()).requires_grad_(true);
  const at::Tensor loss = norm->forward(x).sum();
  finish();
  try {
    loss.backward();
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 ran the forward without recording one"));
  }
}

TEST_F(DeviceSyncBatchNorm, ARankThatRecordsNothingIsNamedByTheNextCallElse) {
  SyncBatchNorm norm = norm_over(two_ranks(Other::kNothing));
  const at::Tensor x = torch::randn({8, 4}, device()).requires_grad_(true);
  norm->forward(x).sum().backward();
  finish();
  try {
    norm->forward(x);
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 ran the forward without recording one"));
  }
}

// Nobody knows in time whether another rank's input wants a gradient: whoever records takes part.
TEST_F(DeviceSyncBatchNorm, TakesPartInTheBackwardAlsoWhereOnlyWeightsWantGradients) {
  const ProcessGroup group = two_ranks();
  SyncBatchNorm norm = norm_over(group);
  const at::Tensor y = norm->forward(torch::randn({8, 4}, device()));
  const std::int64_t before = group.counts().collectives;
  y.sum().backward();
  EXPECT_EQ(group.counts().collectives, before + 1);
  EXPECT_TRUE(norm->weight.grad().defined());
}

}  // namespace
}  // namespace mezzo::pretend
