#include "support/ranks.h"

#include <mezzo/error.h>
#include <mezzo/process_group.h>
#include <torch/types.h>

#include <cstdlib>
#include <iostream>

#include "support/process.h"

namespace examples {

int run_in_ranks(int processes, int argc, const char* const* argv,
                 const std::function<void()>& work) {
  if (processes == 1 || std::getenv("RANK") != nullptr) {
    work();
    return 0;
  }
  std::vector<std::string> arguments{"launch", "--nproc-per-node", std::to_string(processes), "--",
                                     this_program().string()};
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  return run_and_wait(MEZZO_PROGRAM, arguments);
}

Ranks::Ranks() {
  if (std::getenv("RANK") == nullptr) return;
  mezzo::parallel::init_process_group();
  rank_ = mezzo::parallel::rank();
  size_ = mezzo::parallel::world_size();
}

Ranks::~Ranks() {
  if (size_ > 1) mezzo::parallel::destroy_process_group();
}

at::Tensor Ranks::share(const at::Tensor& batch) const {
  if (batch.size(0) % size_ != 0) {
    throw mezzo::ConfigError("a batch of " + std::to_string(batch.size(0)) +
                             " cannot be shared equally by " + std::to_string(size_) +
                             " processes; choose a multiple as --batch-size");
  }
  const std::int64_t each = batch.size(0) / size_;
  return batch.narrow(0, rank_ * each, each);
}

void Ranks::expect_equal(const std::vector<at::Tensor>& tensors) const {
  if (size_ == 1) return;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor all = mezzo::parallel::world().all_gather(tensor.detach().contiguous());
    for (int r = 1; r < size_; ++r) {
      if (!all[r].equal(all[0])) {
        throw mezzo::Error("the weights of rank " + std::to_string(r) + " are not rank 0's");
      }
    }
  }
  if (rank_ == 0) {
    std::cerr << "weights are equal on all " << size_ << " ranks, to the last bit\n";
  }
}

}  // namespace examples
