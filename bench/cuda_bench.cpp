// Suite cuda: fused steps and layers on a GPU against LibTorch's operators there.
#include <iostream>

#include "core/raise.h"
#include "cuda_steps.h"
#include "cuda_timing.h"
#include "suites.h"

namespace mezzo::bench {

void run_cuda(Report& report, const Settings& settings) {
  if (const std::string why = why_no_cuda(); !why.empty()) {
    raise("bench", "nothing can be measured on a GPU: ", why);
  }
  const double bandwidth = copy_bandwidth_on_cuda();
  std::cerr << "copy: " << bandwidth / 1e9 << " GB/s\n";
  run_cuda_steps(report, settings.repeats, bandwidth);
  run_cuda_weights(report, settings.repeats, bandwidth);
  run_cuda_layers(report, settings.repeats, bandwidth);
#ifdef MEZZO_WITH_PARALLEL
  run_cuda_batch_norms(report, settings.repeats, bandwidth);
#endif
}

}  // namespace mezzo::bench
