#include "optim/archive.h"

#include <ATen/ops/tensor.h>
#include <torch/optim/adam.h>

#include "bridge/tensors.h"
#include "core/torch.h"

namespace mezzo::optim {

SavedOptimizer read_optimizer(const char* optimizer, torch::serialize::InputArchive& archive,
                              const ParamGroups& groups) {
  SavedOptimizer saved;
  torch::serialize::InputArchive param_groups;
  at::Tensor count;
  if (!archive.try_read("state", saved.states) || !archive.try_read("param_groups", param_groups) ||
      !param_groups.try_read("param_groups/size", count)) {
    raise(optimizer, "the archive holds no optimizer");
  }
  const auto group_count = static_cast<std::size_t>(count.item<std::int64_t>());
  if (group_count != groups.size()) {
    raise(optimizer, "the saved optimizer has ", group_count, " groups, this one ", groups.size());
  }
  for (std::size_t g = 0; g < group_count; ++g) {
    torch::serialize::InputArchive group;
    param_groups.read("param_groups/" + std::to_string(g), group);
    group.read("params/size", count);
    const auto param_count = static_cast<std::size_t>(count.item<std::int64_t>());
    if (param_count != groups[g].params().size()) {
      raise(optimizer, "group ", g, " of the saved optimizer has ", param_count,
            " parameters, this one ", groups[g].params().size());
    }
    SavedGroup& of_group = saved.groups.emplace_back();
    for (std::size_t i = 0; i < param_count; ++i) {
      c10::IValue key;
      group.read("params/" + std::to_string(i), key);
      of_group.keys.push_back(key.toStringRef());
    }
    group.read("options", of_group.options);
  }
  return saved;
}

void check_moments(const char* optimizer, const torch::optim::AdamParamState& state,
                   const at::Tensor& param, const std::string& name) {
  check_state_tensor(optimizer, "exp_avg", state.exp_avg(), param, name);
  check_state_tensor(optimizer, "exp_avg_sq", state.exp_avg_sq(), param, name);
  if (!state.max_exp_avg_sq().defined()) return;
  check_state_tensor(optimizer, "max_exp_avg_sq", state.max_exp_avg_sq(), param, name);
}

void check_state_tensor(const char* optimizer, const char* what, const at::Tensor& state,
                        const at::Tensor& param, const std::string& name) {
  if (!state.defined()) {
    raise(optimizer, "the saved state of ", name, " has no '", what,
          "': it is that of another optimizer");
  }
  if (state.sizes() != param.sizes()) {
    raise(optimizer, "the saved '", what, "' (", bridge::describe(state), ") does not fit ", name,
          " (", bridge::describe(param), ")");
  }
}

}  // namespace mezzo::optim
