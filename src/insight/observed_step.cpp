#include "insight/observed_step.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <optional>

#include "insight/surroundings.h"
#include "parallel/aside.h"

namespace mezzo::insight {

Arriving follow_results(const std::vector<at::Tensor>& results) {
  auto arriving = std::make_shared<std::vector<at::Tensor>>(results.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].requires_grad() || results[i].is_leaf()) continue;
    results[i].register_hook(
        [arriving, i](const at::Tensor& gradient) { (*arriving)[i] = gradient.detach(); });
  }
  return arriving;
}

void observe_step(const Networks& networks, const Precision& precision,
                  const std::function<at::Tensor()>& loss, double scale, std::string_view where,
                  CallListener& listener) {
  std::vector<at::Tensor> buffers, trained;
  for (const torch::nn::Module* module : networks.modules) {
    const std::vector<at::Tensor> more = module->buffers();
    buffers.insert(buffers.end(), more.begin(), more.end());
  }
  const parallel::Aside aside;
  const Surroundings surroundings(buffers);
  const FloatWhile weights(networks.models, precision);
  const TrialRules rules(networks.models, precision);
  const at::AutoGradMode records(true);
  for (const torch::nn::Module* module : networks.modules) {
    for (const at::Tensor& parameter : module->parameters()) {
      if (parameter.defined() && parameter.requires_grad()) trained.push_back(parameter);
    }
  }
  listener.starts();
  CallObserver observer(listener);
  const at::Tensor result = loss();
  observer.forward_is_over();
  check_loss(result, where);
  if (trained.empty()) return;
  torch::autograd::grad({scaled(result, scale)}, trained, {}, std::nullopt, false,
                        /*allow_unused=*/true);
}

}  // namespace mezzo::insight
