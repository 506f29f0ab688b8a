// simple_amp.cpp in many processes: each has its own data, all have one model.
//
//   mezzo launch --nproc-per-node 2 -- simple_distributed
#include <mezzo/mezzo.h>
#include <torch/torch.h>

#include <iostream>

namespace amp = mezzo::amp;
namespace parallel = mezzo::parallel;

int main() {
  parallel::init_process_group();
  torch::manual_seed(parallel::rank());
  const at::Tensor input = torch::randn({64, 1024});
  const at::Tensor target = torch::randn({64, 16});

  torch::nn::Linear net(1024, 16);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.01));
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O1"});
  parallel::DistributedDataParallel ddp(model);

  at::Tensor loss;
  for (int step = 0; step <= 500; ++step) {
    optimizer.zero_grad();
    loss = torch::mse_loss(ddp(input), target);
    amp::scale_loss(loss, optimizer).backward();
    optimizer.step();
  }
  std::cout << "final loss " << loss.item<float>() << std::endl;
  parallel::destroy_process_group();
}
