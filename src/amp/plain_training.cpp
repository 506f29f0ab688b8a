#include "amp/plain_training.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "amp/gradients.h"
#include "amp/optimizer_state.h"
#include "core/raise.h"

namespace mezzo::amp::detail {
namespace {

namespace autograd = torch::autograd::impl;

constexpr std::string_view kInPlainTraining = "model";

bool is_missed(const Slot& slot) {
  return slot.has_master() && has_gradient(slot.weight) && !slot.master.grad().defined();
}

}  // namespace

class PlainTraining::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Hook(PlainTraining& owner) : owner_(owner) {}
  void operator()(const torch::autograd::Variable&) override {
    // Inside a scope of another optimizer the loss is that one's.
    if (owner_.trains_.load(std::memory_order_relaxed) &&
        !owner_.optimizer_->session().shown_gradients().hidden())
      owner_.saw_backward_.store(true, std::memory_order_relaxed);
  }

 private:
  PlainTraining& owner_;
};

void PlainTraining::watch(OptimizerState& optimizer) {
  optimizer_ = &optimizer;
  for (const Slot& slot : optimizer.slots().all()) {
    if (!slot.has_master() || autograd::post_acc_grad_hooks(slot.weight) != nullptr) continue;
    auto hook = std::make_unique<Hook>(*this);
    watched_.push_back({slot.weight, hook.get()});
    autograd::set_post_acc_grad_hooks(slot.weight, std::move(hook));
  }
}

void PlainTraining::stop() noexcept {
  for (const Watched& each : watched_) {
    if (autograd::post_acc_grad_hooks(each.weight).get() == each.hook)
      autograd::set_post_acc_grad_hooks(each.weight, nullptr);
  }
  watched_.clear();
}

void PlainTraining::note_call(bool trains) {
  if (watched_.empty()) return;
  trains_.store(trains, std::memory_order_relaxed);
  if (trains && saw_backward_.exchange(false, std::memory_order_relaxed)) check();
}

void PlainTraining::check() {
  ++backwards_;
  const std::string advice =
      ", so that nothing is trained: at " + optimizer_->session().plan().properties.opt_level +
      " every loss goes through scale_loss(loss, optimizer).backward(), and every step through "
      "step() of the handle that initialize returned, for every optimizer that owns such weights";
  const std::vector<Slot>& slots = optimizer_->slots().all();
  const auto missed = std::ranges::find_if(slots, is_missed);
  if (missed != slots.end()) {
    raise(kInPlainTraining, "'", missed->entry->name,
          "' has a gradient from a plain backward(), which its float master does not get", advice);
  }
  if (backwards_ < 2) return;
  raise(kInPlainTraining, "optimizer ", optimizer_->index(),
        " was trained by plain backward() calls, whose gradients the float masters of its weights "
        "do not get",
        advice);
}

}  // namespace mezzo::amp::detail
