// Norms through the CUDA kernels, against the same call on the processor.
#include "mezzo/nn.h"
#include "support/cuda_places.h"

namespace mezzo::nn {
namespace {

class NormsOnCuda : public testing_cuda::AtPlaces {};
INSTANTIATE_TEST_SUITE_P(Nn, NormsOnCuda,
                         testing::Values(testing_cuda::Place::kEmulation,
                                         testing_cuda::Place::kGpu),
                         [](const auto& row) { return testing_cuda::name_of(row.param); });

std::vector<at::Tensor> run(const at::Device& device, at::ScalarType type, bool memory_efficient) {
  torch::manual_seed(3);
  const auto leaf = [&](const at::Tensor& tensor) {
    return tensor.to(type).to(device).detach().requires_grad_(true);
  };
  const at::Tensor x = leaf(torch::randn({37, 768}));
  const at::Tensor weight = leaf(torch::rand({768}) + 0.5);
  const at::Tensor bias = leaf(torch::randn({768}));
  const at::Tensor y = fused_layer_norm(x, {768}, weight, bias, 1e-5, memory_efficient);
  const at::Tensor rms = fused_rms_norm(x, {768}, weight, 1e-5, memory_efficient);
  const at::Tensor shifted = fused_layer_norm(x, {768}, {}, bias, 1e-5, memory_efficient);
  const auto [sum, added] = fused_add_layer_norm(x, x * 2, {768}, weight, bias, 1e-5);
  (y.to(at::kFloat).pow(3).sum() + rms.to(at::kFloat).pow(3).sum() +
   shifted.to(at::kFloat).pow(3).sum() + sum.to(at::kFloat).sum() +
   added.to(at::kFloat).pow(3).sum())
      .backward();
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : {y, rms, sum, added, x.grad(), weight.grad(), bias.grad()}) {
    result.push_back(tensor.detach().cpu().to(at::kDouble));
  }
  return result;
}

TEST_P(NormsOnCuda, AgreeWithTheProcessorForwardAndBackward) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    for (const bool memory_efficient : {false, true}) {
      const auto here = run(at::kCPU, type, memory_efficient);
      const testing_cuda::KernelsAt kernels(place());
      const auto there = run(device(), type, memory_efficient);
      const double tolerance = type == at::kDouble  ? 1e-9
                               : type == at::kFloat ? 1e-4
                               : type == at::kHalf  ? 2e-2
                                                    : 1e-1;
      for (std::size_t i = 0; i < here.size(); ++i) {
        const double largest = here[i].abs().max().item<double>();
        EXPECT_LT((here[i] - there[i]).abs().max().item<double>(), tolerance * (1 + largest))
            << type << ' ' << i;
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::nn
