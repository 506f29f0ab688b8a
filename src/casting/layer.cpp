#include "casting/layer.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <unordered_map>

#include "casting/bindings.h"
#include "casting/boxed_kernel.h"
#include "casting/scope.h"
#include "operators/operators.h"
#include "policy/registry.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace mezzo::casting {
namespace {

constexpr std::string_view kAten = "aten::";

c10::DispatchKey free_key() {
  constexpr std::array kCandidates{c10::DispatchKey::AutocastPrivateUse1,
                                   c10::DispatchKey::AutocastIPU, c10::DispatchKey::AutocastHPU,
                                   c10::DispatchKey::AutocastXLA};
  for (const c10::DispatchKey key : kCandidates) {
    if (!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(key)) return key;
  }
  raise<UnsupportedError>(
      "autocast",
      "every Autocast dispatch key that LibTorch leaves free was taken by another library; "
      "casts cannot be added to this process");
}

// Everything that was registered lives as long as the process: kernels may run while static objects
// are destroyed.
class Layer {
 public:
  Layer() : key_(free_key()) {
    keep(c10::Dispatcher::singleton().registerFallback(key_, c10::KernelFunction::makeFallthrough(),
                                                       "mezzo"));
    Binder binder;
    bind_matrix(binder);
    bind_convolution(binder);
    bind_pointwise(binder);
    bind_loss(binder);
    bind_guarded(binder);
    bind_sums(binder);
    for (Binder::Binding& binding : binder.bindings()) {
      std::string name = binding.name.substr(kAten.size());
      if (!binding.overload.empty()) name += "." + binding.overload;
      bound_.emplace(std::move(name), std::move(binding));
    }
    collect_overloads();
  }

  c10::DispatchKey key() const noexcept { return key_; }

  void install(const CompiledPolicy& policy) {
    const std::lock_guard lock(mutex_);
    for (std::size_t row = 0; row < policy.treatments().size(); ++row) {
      if (row < installed_.size() && installed_[row]) continue;
      if (!needs_kernel(policy, row)) continue;
      install_row(row);
      installed_.resize(std::max(installed_.size(), row + 1));
      installed_[row] = true;
    }
  }

  std::vector<LayerOperator> installed() const {
    const std::lock_guard lock(mutex_);
    return operators_;
  }

 private:
  // Operators that pass keep falling through at no cost.
  static bool needs_kernel(const CompiledPolicy& policy, std::size_t row) {
    if (row < operators().size()) {
      const Operator& op = operators()[row];
      if (op.matrix || op.guards_scalars || op.updates_statistics) return true;
      if (op.sums || op.sums_gradients || op.is_steep()) return true;
    }
    return policy.treatment_of(row) != Treatment::kPass;
  }

  void collect_overloads() {
    for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
      if (!op.name.starts_with(kAten) || !c10::Dispatcher::singleton().findSchema(op)) continue;
      std::string overload = op.name.substr(kAten.size());
      if (!op.overload_name.empty()) overload += "." + op.overload_name;
      if (const std::optional<Found> found = find(overload))
        overloads_[found->row].push_back(std::move(overload));
    }
  }

  void install_row(std::size_t row) {
    if (row >= operators().size()) {
      const std::string name(row_name(row));
      return install_boxed(name, Row(row, name));
    }
    for (const std::string& overload : overloads_[row]) {
      const auto found = bound_.find(overload);
      if (found == bound_.end()) {
        install_boxed(std::string(kAten) + overload, Row(row, overload));
        continue;
      }
      Binder::Binding& binding = found->second;
      *binding.row = Row(row, overload);
      keep(c10::Dispatcher::singleton().registerImpl(
          {binding.name, binding.overload}, key_, binding.kernel, std::nullopt, nullptr, "mezzo"));
      operators_.push_back({overload, true});
    }
  }

  void install_boxed(const std::string& name, Row row) {
    const std::size_t dot = name.find('.');
    const c10::OperatorName op(name.substr(0, dot),
                               dot == std::string::npos ? "" : name.substr(dot + 1));
    if (!c10::Dispatcher::singleton().findSchema(op)) {
      raise<ConfigError>("autocast",
                         "the policy names an operator that the dispatcher does not have: '", name,
                         "'; load the library that defines it before a scope is opened");
    }
    auto kernel =
        c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(std::move(row)));
    keep(c10::Dispatcher::singleton().registerImpl(op, key_, std::move(kernel), std::nullopt,
                                                   nullptr, "mezzo"));
    operators_.push_back({name.starts_with(kAten) ? name.substr(kAten.size()) : name, false});
  }

  void keep(c10::RegistrationHandleRAII handle) { handles_.push_back(std::move(handle)); }

  mutable std::mutex mutex_;
  c10::DispatchKey key_;
  std::vector<c10::RegistrationHandleRAII> handles_;
  std::unordered_map<std::string, Binder::Binding> bound_;
  std::map<std::size_t, std::vector<std::string>> overloads_;
  std::vector<bool> installed_;
  std::vector<LayerOperator> operators_;
};

Layer& layer() {
  static auto* layer = new Layer;
  return *layer;
}

// Read by every kernel, so without the guard of a static local variable.
std::atomic<c10::DispatchKey> key_in_use{c10::DispatchKey::Undefined};

}  // namespace

void install_layer(const CompiledPolicy& policy) {
  if (policy.is_installed()) return;
  layer().install(policy);
  key_in_use.store(layer().key(), std::memory_order_relaxed);
  policy.mark_installed();
}

c10::DispatchKey layer_key() noexcept {
  return key_in_use.load(std::memory_order_relaxed);
}

std::vector<LayerOperator> layer_operators() {
  return layer().installed();
}

}  // namespace mezzo::casting
