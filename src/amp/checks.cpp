#include "amp/checks.h"

#include <unordered_set>

#include "amp/module_types.h"
#include "amp/session.h"
#include "core/raise.h"
#include "optim/kinds.h"

namespace mezzo::amp::detail {
namespace {

constexpr std::string_view kInChecks = "initialize";

void check_modules(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  if (modules.empty()) raise<ConfigError>(kInChecks, "got no network");
  std::unordered_set<const void*> seen;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (modules[i] == nullptr) raise<ConfigError>(kInChecks, "network ", i, " is an empty handle");
    if (!seen.insert(modules[i].get()).second)
      raise<ConfigError>(kInChecks, "network ", i, " was given twice");
  }
}

void check_types(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  for (const auto& module : modules) {
    const std::string name = first_low_name(*module);
    if (name.empty()) continue;
    raise<ConfigError>(
        kInChecks, "'", name,
        "' is in half precision already; give a float network and let the level cast it, or set "
        "cast_model_type to ScalarType::Undefined to keep the types that you chose");
  }
}

void check_ownership(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                     const std::vector<OptimizerRef>& optimizers) {
  std::unordered_set<const c10::TensorImpl*> of_networks;
  for (const auto& module : modules) {
    for (const at::Tensor& parameter : module->parameters()) {
      of_networks.insert(parameter.unsafeGetTensorImpl());
    }
  }
  std::unordered_set<const void*> seen;
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    if (!seen.insert(optimizers[i].inner).second) {
      raise<ConfigError>(kInChecks, "optimizer ", i, " was given twice");
    }
    bool owns = false;
    for (const auto& group : optimizers[i].inner->param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        owns = owns || of_networks.contains(parameter.unsafeGetTensorImpl());
      }
    }
    if (!owns) {
      raise<ConfigError>(kInChecks, "optimizer ", i,
                         " owns no parameter of the networks; construct it from net->parameters() "
                         "of a network that "
                         "is given here");
    }
  }
}

void check_split_masters(const std::vector<OptimizerRef>& optimizers) {
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    const torch::optim::Optimizer& inner = *optimizers[i].inner;
    const optim::OptimizerKind* const kind = optim::kind_of(inner);
    const bool splits = kind != nullptr && kind->steps_split_masters;
    if (splits && !optimizers[i].step) continue;
    raise<ConfigError>(
        kInChecks, "split_masters: optimizer ", i, " is ",
        splits ? "wrapped in something that reads masters" : optim::name_of(inner),
        "; give a FusedAdam, FusedSGD or FusedLAMB itself, or leave split_masters off");
  }
}

}  // namespace

void check_arguments(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                     const std::vector<OptimizerRef>& optimizers, const Plan& plan) {
  check_modules(modules);
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    if (optimizers[i].inner == nullptr)
      raise<ConfigError>(kInChecks, "optimizer ", i, " is a null pointer");
  }
  if (!plan.properties.enabled) return;
  // Before the types: what a first call cast would look like the caller's choice.
  Claims::check(modules, optimizers);
  if (!plan.keep_types) check_types(modules);
  check_ownership(modules, optimizers);
  if (plan.split_masters) check_split_masters(optimizers);
}

}  // namespace mezzo::amp::detail
