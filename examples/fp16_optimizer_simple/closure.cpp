// An optimizer that evaluates the loss itself, several times a step, around float masters of a half
// layer.
#include <mezzo/fp16_utils.h>
#include <torch/torch.h>

#include <iostream>

namespace fp16 = mezzo::fp16_utils;

int main() {
  torch::manual_seed(0);
  const at::Tensor input = torch::randn({64, 1024});
  const at::Tensor target = torch::randn({64, 16});

  auto model = fp16::network_to_half(torch::nn::Linear(1024, 16));
  torch::optim::LBFGS lbfgs(model.parameters(), torch::optim::LBFGSOptions(0.5));
  fp16::FP16_Optimizer optimizer(
      lbfgs, {.dynamic_loss_args = fp16::DynamicLossArgs{65536, 2, 2000}, .verbose = false});

  for (int step = 0; step < 5; ++step) {
    const at::Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      at::Tensor error = torch::mse_loss(model(input).to(at::kFloat), target);
      optimizer.backward(error);
      return error;
    });
    std::cout << "step " << step << "  loss " << loss.item<float>() << "  scale "
              << optimizer.loss_scale() << '\n';
  }
}
