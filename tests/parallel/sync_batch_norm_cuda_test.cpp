// Batch norm through the CUDA kernels, in one process, against the same layer on the processor.
#include "mezzo/sync_batch_norm.h"
#include "parallel/batch_norm_steps.h"
#include "support/cuda_places.h"

namespace mezzo::parallel {
namespace {

class SyncBatchNormOnCuda : public testing_cuda::AtPlaces {};
INSTANTIATE_TEST_SUITE_P(Distributed, SyncBatchNormOnCuda,
                         testing::Values(testing_cuda::Place::kEmulation,
                                         testing_cuda::Place::kGpu),
                         [](const auto& row) { return testing_cuda::name_of(row.param); });

struct CudaCase {
  std::vector<std::int64_t> sizes;
  bool channels_last, residual, relu, affine;
};
const std::vector<CudaCase>& cuda_cases() {
  static const std::vector<CudaCase> all{
      {{5, 16, 7, 9}, false, true, true, true}, {{5, 16, 8, 8}, false, false, false, true},
      {{6, 24, 5, 5}, true, true, true, true},  {{3, 5, 4, 6}, true, false, true, false},
      {{40, 33}, false, true, false, true},     {{2, 3, 1000}, false, false, true, true},
      {{0, 6, 4, 4}, false, false, false, true}};
  return all;
}

std::vector<at::Tensor> run(const at::Device& device, at::ScalarType type, const CudaCase& one) {
  torch::manual_seed(9);
  const auto leaf = [&](const at::Tensor& tensor) {
    at::Tensor result = tensor.to(type).to(device);
    if (one.channels_last) result = result.contiguous(at::MemoryFormat::ChannelsLast);
    return result.detach().requires_grad_(true);
  };
  SyncBatchNorm norm(SyncBatchNormOptions{
      .num_features = one.sizes[1], .affine = one.affine, .fuse_relu = one.relu});
  if (one.affine) {
    const at::NoGradGuard no_grad;
    norm->weight.copy_(torch::rand(norm->weight.sizes()) + 0.5);
    norm->bias.copy_(torch::randn(norm->bias.sizes()));
  }
  norm->to(device);
  const at::Tensor x = leaf(torch::randn(one.sizes) * 3 + 100);
  const at::Tensor z = one.residual ? leaf(torch::randn(one.sizes)) : at::Tensor();
  const at::Tensor direction = torch::randn(one.sizes).to(type).to(device);
  std::vector<at::Tensor> result{norm->forward(x, z)};
  (result[0] * direction).sum().backward();
  result.push_back(x.grad());
  if (one.residual) result.push_back(z.grad());
  if (one.affine) {
    result.push_back(norm->weight.grad());
    result.push_back(norm->bias.grad());
  }
  result.push_back(norm->running_mean);
  result.push_back(norm->running_var);
  norm->eval();
  result.push_back(norm->forward(x, z));
  for (at::Tensor& tensor : result) tensor = tensor.detach().cpu().to(at::kDouble);
  return result;
}

TEST_P(SyncBatchNormOnCuda, AgreesWithTheProcessorForwardAndBackward) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    for (const CudaCase& one : cuda_cases()) {
      const auto here = run(at::kCPU, type, one);
      const testing_cuda::KernelsAt kernels(place());
      const auto there = run(device(), type, one);
      const double tolerance = type == at::kDouble  ? 1e-10
                               : type == at::kFloat ? 1e-5
                               : type == at::kHalf  ? 4e-3
                                                    : 3e-2;
      ASSERT_EQ(here.size(), there.size());
      for (std::size_t i = 0; i < here.size(); ++i) {
        if (here[i].numel() == 0) continue;
        const double largest = here[i].abs().max().item<double>();
        EXPECT_LE((here[i] - there[i]).abs().max().item<double>(), tolerance * (1 + largest))
            << type << ' ' << one.sizes << ", result " << i;
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::parallel
