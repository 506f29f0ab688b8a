// 1. Many processes: each has a rank, and they can compute together.
//
//   mezzo launch --nproc-per-node 2 -- distributed_processes
#include <mezzo/mezzo.h>
#include <torch/torch.h>

#include <iostream>

namespace parallel = mezzo::parallel;

int main() {
  parallel::init_process_group();  // finds the others through what the launcher set
  const int rank = parallel::rank();
  std::cout << "I am rank " << rank << " of " << parallel::world_size() << std::endl;

  const at::Tensor value = torch::full({1}, rank + 1.0);
  parallel::world().all_reduce(value);
  std::cout << "the sum over all ranks is " << value.item<float>() << std::endl;
  parallel::destroy_process_group();
}
