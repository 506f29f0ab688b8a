// 2. One model in all processes, each with its own data: one line more than the loop of a single
// process, and after each backward everybody has the average of all gradients.
//
//   mezzo launch --nproc-per-node 2 -- distributed_data_parallel
#include <mezzo/mezzo.h>

#include <iostream>

#include "points.h"

namespace parallel = mezzo::parallel;

int main() {
  parallel::init_process_group();
  torch::manual_seed(0);
  points::Net net;
  parallel::DistributedDataParallel ddp(net);  // everybody gets rank 0's weights
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

  for (int step = 0; step < 200; ++step) {
    const auto [x, kind] = points::batch(step * parallel::world_size() + parallel::rank());
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(ddp(x), kind).backward();
    optimizer.step();
  }

  net->eval();
  if (parallel::rank() == 0) std::cout << "accuracy " << points::accuracy(net) << std::endl;
  parallel::destroy_process_group();
}
