// Steps while a graph is captured, where the host can decide nothing.
#include <optional>

#include "bridge/device.h"
#include "core/raise.h"
#include "optim/step_work.h"

namespace mezzo::optim {

void StepWork::check_capture(const char* optimizer) const {
  std::optional<at::Device> asked;
  bool is_captured = false;
  for (const Stepped& stepped : parameters) {
    if (asked == stepped.param->device()) continue;
    asked = stepped.param->device();
    is_captured = is_captured || bridge::current_capture(*asked) != 0;
  }
  if (!is_captured) return;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& param = *parameters[i].param;
    if (!device.has(i)) {
      raise(optimizer, "a graph is being captured, and ", name_of(parameters[i]),
            " is where no kernels of ours decide about a step: step outside of the graph");
    }
    if (!device.counts(i, param)) {
      raise(optimizer, "a graph is being captured, and ", name_of(parameters[i]),
            " has not been stepped there yet, which makes its state and counter: make one ordinary "
            "step with a gradient for each parameter before the capture");
    }
  }
}

}  // namespace mezzo::optim
