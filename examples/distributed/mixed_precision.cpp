// 4. The same in mixed precision: `initialize` first, then DistributedDataParallel around the model
// that it returns. An overflow on one rank skips the step on all.
//
//   mezzo launch --nproc-per-node 2 -- distributed_mixed_precision
#include <mezzo/mezzo.h>

#include <iostream>

#include "points.h"

namespace amp = mezzo::amp;
namespace parallel = mezzo::parallel;

int main(int argc, char** argv) {
  parallel::init_process_group();
  torch::manual_seed(0);
  points::Net net = parallel::convert_syncbn_model(points::Net());
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto [model, optimizer] = amp::initialize(
      net, sgd, {.opt_level = argc > 1 ? argv[1] : "O1", .verbosity = parallel::rank() == 0});
  parallel::DistributedDataParallel ddp(model);

  for (int step = 0; step < 200; ++step) {
    const auto [x, kind] = points::batch(step * parallel::world_size() + parallel::rank());
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(ddp(x), kind);
    amp::scale_loss(loss, optimizer).backward();
    optimizer.step();
  }

  model->eval();
  if (parallel::rank() == 0) {
    std::cout << "accuracy " << points::accuracy(model) << ", scale " << optimizer.loss_scale()
              << ", skipped " << optimizer.skipped_steps() << std::endl;
  }
  parallel::destroy_process_group();
}
