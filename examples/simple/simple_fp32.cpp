// One linear layer learns fixed random targets. There are two of this program: simple_fp32.cpp is
// an ordinary one of LibTorch, simple_amp.cpp trains in mixed precision. Compare them.
#include <torch/torch.h>

#include <iostream>

template <class Model, class Optimizer>
void train(Model& model, Optimizer& optimizer, const at::Tensor& input, const at::Tensor& target) {
  for (int step = 0; step <= 500; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(model(input), target);
    loss.backward();
    optimizer.step();
    if (step % 100 == 0) std::cout << "step " << step << "  loss " << loss.item<float>() << '\n';
  }
}

int main() {
  torch::manual_seed(0);
  const at::Tensor input = torch::randn({64, 1024});
  const at::Tensor target = torch::randn({64, 16});

  torch::nn::Linear net(1024, 16);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.01));
  train(net, sgd, input, target);
}
