#include "casting/scope.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>

#include <utility>

#include "casting/hardware.h"
#include "casting/layer.h"
#include "casting/shadow_cache.h"
#include "casting/weight_shadows.h"
#include "casting/weights.h"

namespace mezzo::casting {
namespace {

// Read by every kernel: found at a fixed place in the thread's memory, without a call.
#if defined(__GNUC__)
__attribute__((tls_model("initial-exec")))
#endif
thread_local const Frame* innermost = nullptr;

// The key must be both included and taken out of the set that every thread excludes by default, and
// that a listed operator excludes while it runs.
constexpr KeyState kKeyOn{true, false};

KeyState key_state() {
  const c10::DispatchKey key = layer_key();
  return {c10::impl::tls_is_dispatch_key_included(key),
          c10::impl::tls_is_dispatch_key_excluded(key)};
}

void set_key(KeyState state) {
  const c10::DispatchKey key = layer_key();
  c10::impl::tls_set_dispatch_key_included(key, state.included);
  c10::impl::tls_set_dispatch_key_excluded(key, state.excluded);
}

ScopeRules rules_of(const CompiledPolicy& policy, Mode mode) {
  return {.low = policy.low(), .emulated = emulated(policy.low()), .mode = mode};
}

// Emulation is for processors: where it is chosen, tensors on devices are cast all the same.
std::array<KnownShadows, 2> shadows_of(const ScopeRules& rules) {
  const auto known = [&](Plan plan) -> KnownShadows {
    ShadowCache* const cache =
        ShadowCache::of_this_thread({rules.low, /*in_float=*/plan == Plan::kEmulate});
    return cache == nullptr ? KnownShadows{} : KnownShadows{{plan, rules.low}, cache};
  };
  if (!rules.emulated) return {known(Plan::kCast)};
  return {known(Plan::kEmulate), known(Plan::kCast)};
}

}  // namespace

Scope::Scope(const Policy& policy, Mode mode, const CastListener* listener, OpenedBy opened_by)
    : policy_(policy) {
  frame_.source = &policy_;
  frame_.policy = &compiled(policy_);
  install_layer(*frame_.policy);
  frame_.rules = rules_of(*frame_.policy, mode);
  frame_.graph_task = torch::autograd::get_current_graph_task_id();
  frame_.opened_by = opened_by;
  frame_.listener = listener;
  frame_.keeps_weights = WeightKeeping::here();
  // A listener hears of each use.
  if (listener == nullptr && frame_.keeps_weights) frame_.shadows = shadows_of(frame_.rules);
  frame_.below = c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, layer_key()) -
                 c10::autocast_dispatch_keyset;
  frame_.previous = std::exchange(innermost, &frame_);
  key_before_ = key_state();
  if (key_before_ != kKeyOn) set_key(kKeyOn);
  scripts_were_optimized_ = torch::jit::getGraphExecutorOptimize();
  if (mode == Mode::kOperators) torch::jit::setGraphExecutorOptimize(false);
}

Scope::~Scope() {
  torch::jit::setGraphExecutorOptimize(scripts_were_optimized_);
  if (key_before_ != kKeyOn) set_key(key_before_);
  innermost = frame_.previous;
  if (innermost == nullptr) WeightShadows::global().end_outermost_scope();
}

Disabled::Disabled() {
  if (innermost != nullptr && innermost->policy != nullptr) {
    frame_.source = innermost->source;
    frame_.policy = innermost->policy;
    frame_.rules = innermost->rules;
    frame_.rules.mode = Mode::kEmulationOnly;
    frame_.graph_task = innermost->graph_task;
    frame_.keeps_weights = innermost->keeps_weights;
    frame_.shadows = innermost->shadows;
    frame_.below = innermost->below;
  }
  frame_.previous = std::exchange(innermost, &frame_);
}

Disabled::~Disabled() {
  innermost = frame_.previous;
}

bool inside_model_call() noexcept {
  return innermost != nullptr && innermost->policy != nullptr &&
         innermost->opened_by == OpenedBy::kModel;
}

const Frame* current_frame() noexcept {
  return innermost;
}

const Frame* active_frame() noexcept {
  const Frame* frame = innermost;
  if (frame == nullptr || frame->policy == nullptr) return nullptr;
  return torch::autograd::get_current_graph_task_id() == frame->graph_task ? frame : nullptr;
}

}  // namespace mezzo::casting
