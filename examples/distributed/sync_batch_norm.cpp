// 3. Batch norm over all ranks: sixteen points are few to take a mean and a variance from, those of
// all processes are more. One line more than step 2, before DistributedDataParallel.
//
//   mezzo launch --nproc-per-node 2 -- distributed_sync_batch_norm
#include <mezzo/mezzo.h>

#include <iostream>

#include "points.h"

namespace parallel = mezzo::parallel;

int main() {
  parallel::init_process_group();
  torch::manual_seed(0);
  points::Net net = parallel::convert_syncbn_model(points::Net());
  parallel::DistributedDataParallel ddp(net);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  for (int step = 0; step < 500; ++step) {
    const auto [x, kind] = points::batch(step * parallel::world_size() + parallel::rank(), 16);
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(ddp(x), kind).backward();
    optimizer.step();
  }

  // Statistics that every rank took from the same points are the same everywhere.
  const at::Tensor means = parallel::world().all_gather(net->norm->running_mean);
  const bool same = means.eq(means[0]).all().item<bool>();
  net->eval();
  if (parallel::rank() == 0) {
    std::cout << "accuracy " << points::accuracy(net) << ", statistics are "
              << (same ? "the same on all ranks" : "different") << std::endl;
  }
  parallel::destroy_process_group();
}
