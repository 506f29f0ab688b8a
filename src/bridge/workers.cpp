#include "bridge/workers.h"

#include <ATen/Parallel.h>

namespace mezzo::bridge {
namespace {

/// Some 60 microseconds of a step, ten times what a second thread costs to wake.
constexpr std::int64_t kWorthSharing = 65536;

class TorchWorkers final : public kernels::Workers {
 public:
  void run(std::int64_t items, const kernels::Task& task) const override {
    if (items <= 0) return;
    if (items == 1 || at::in_parallel_region() || at::get_num_threads() == 1) {
      task(0, items);
      return;
    }
    at::parallel_for(0, items, 1,
                     [&task](std::int64_t begin, std::int64_t end) { task(begin, end); });
  }

  std::int64_t worth_sharing() const override { return kWorthSharing; }
};

}  // namespace

const kernels::Workers& torch_workers() {
  static const TorchWorkers workers;
  return workers;
}

}  // namespace mezzo::bridge
