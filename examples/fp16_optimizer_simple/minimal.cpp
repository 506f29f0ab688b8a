// One linear layer in half, trained by an FP16_Optimizer: what stays of a LibTorch program is the
// loop.
#include <mezzo/fp16_utils.h>
#include <torch/torch.h>

#include <iostream>

namespace fp16 = mezzo::fp16_utils;

int main() {
  torch::manual_seed(0);
  const at::Tensor input = torch::randn({64, 1024});
  const at::Tensor target = torch::randn({64, 16});

  auto model = fp16::network_to_half(torch::nn::Linear(1024, 16));
  torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  fp16::FP16_Optimizer optimizer(sgd, {.static_loss_scale = 128, .verbose = false});

  for (int step = 0; step <= 500; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(model(input).to(at::kFloat), target);
    optimizer.backward(loss);
    optimizer.step();
    if (step % 100 == 0) std::cout << "step " << step << "  loss " << loss.item<float>() << '\n';
  }
}
