#include "parallel/gradient_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "core/autograd_node.h"

namespace mezzo::parallel {
namespace {

namespace autograd = torch::autograd;

class HookNotice final : public autograd::FunctionPostHook {
 public:
  explicit HookNotice(std::function<void()> call) : call_(std::move(call)) {}
  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list&) override {
    call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

}  // namespace

struct GradientHooks::Registered {
  // Kept alive: a parameter holds its accumulator weakly, and a new one would have no hook.
  NodePointer accumulator;
  uintptr_t key;
};

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters,
                             const std::function<void(int)>& arrived) {
  for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
    auto accumulator = autograd::impl::grad_accumulator(parameters[static_cast<std::size_t>(i)]);
    const auto key =
        accumulator->add_post_hook(std::make_unique<HookNotice>([arrived, i] { arrived(i); }));
    registered_.push_back({std::move(accumulator), key});
  }
}

GradientHooks::~GradientHooks() {
  for (Registered& hook : registered_) hook.accumulator->del_post_hook(hook.key);
}

std::int64_t current_backward() {
  return autograd::get_current_graph_task_id();
}

std::weak_ptr<const void> at_end_of_backward(std::function<void()> callback) {
  // The engine drops a backward's callbacks with the backward, called or not.
  const auto alive = std::make_shared<std::function<void()>>(std::move(callback));
  autograd::Engine::get_default_engine().queue_callback([alive] { (*alive)(); });
  return alive;
}

}  // namespace mezzo::parallel
