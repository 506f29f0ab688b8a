// minimal.cpp in many processes: DistributedDataParallel averages the half gradients during the
// backward pass, before the FP16_Optimizer takes them over into its float masters.
//
//   mezzo launch --nproc-per-node 2 -- fp16_optimizer_data_parallel
#include <mezzo/fp16_utils.h>
#include <mezzo/parallel.h>
#include <torch/torch.h>

#include <iostream>

namespace fp16 = mezzo::fp16_utils;
namespace parallel = mezzo::parallel;

int main() {
  parallel::init_process_group();
  torch::manual_seed(parallel::rank());
  const at::Tensor input = torch::randn({64, 1024});
  const at::Tensor target = torch::randn({64, 16});

  auto model = fp16::network_to_half(torch::nn::Linear(1024, 16));
  parallel::DistributedDataParallel ddp(model);  // before the masters: they begin as rank 0's
  torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  fp16::FP16_Optimizer optimizer(sgd, {.static_loss_scale = 128, .verbose = false});

  at::Tensor loss;
  for (int step = 0; step <= 500; ++step) {
    optimizer.zero_grad();
    loss = torch::mse_loss(ddp(input).to(at::kFloat), target);
    optimizer.backward(loss);
    optimizer.step();
  }
  const at::Tensor weights = parallel::world().all_gather(model.module()->weight);
  std::cout << "final loss " << loss.item<float>() << ", weights are "
            << (weights.eq(weights[0]).all().item<bool>() ? "equal" : "different") << std::endl;
  parallel::destroy_process_group();
}
