// Archives in the layout of torch::optim, so that state carries over between its optimizers and
// ours. Loading checks everything first and changes nothing when something does not fit.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include <map>
#include <string>

#include "core/raise.h"
#include "mezzo/optim.h"

namespace mezzo::optim {

/// A saved optimizer, read but not yet taken over.
struct SavedGroup {
  std::vector<std::string> keys;
  torch::serialize::InputArchive options;
};
struct SavedOptimizer {
  std::vector<SavedGroup> groups;
  torch::serialize::InputArchive states;
};

/// Throws Error where the archive has other groups than the optimizer.
SavedOptimizer read_optimizer(const char* optimizer, torch::serialize::InputArchive& archive,
                              const ParamGroups& groups);

/// Loads states of type State and options of type T. `check(state, parameter)` throws where a state
/// does not fit its parameter.
template <typename State, typename T, typename Check>
void load_optimizer(const char* optimizer, torch::serialize::InputArchive& archive,
                    torch::optim::Optimizer& into, const Check& check) {
  SavedOptimizer saved = read_optimizer(optimizer, archive, into.param_groups());
  std::vector<T> options;
  std::vector<std::pair<void*, std::unique_ptr<State>>> states;
  for (std::size_t g = 0; g < saved.groups.size(); ++g) {
    auto& group = into.param_groups()[g];
    T& read = options.emplace_back(static_cast<const T&>(group.options()));
    static_cast<Options&>(read).serialize(saved.groups[g].options);
    for (std::size_t i = 0; i < group.params().size(); ++i) {
      torch::serialize::InputArchive of_param;
      if (!saved.states.try_read(saved.groups[g].keys[i], of_param)) continue;
      const at::Tensor& param = group.params()[i];
      auto state = std::make_unique<State>();
      try {
        state->serialize(of_param);
      } catch (const c10::Error&) {
        raise(optimizer, "the saved state of parameter ", i, " of group ", g,
              " is that of another optimizer");
      }
      check(*state, param, "parameter " + std::to_string(i) + " of group " + std::to_string(g));
      states.emplace_back(param.unsafeGetTensorImpl(), std::move(state));
    }
  }
  for (std::size_t g = 0; g < options.size(); ++g) {
    static_cast<T&>(into.param_groups()[g].options()) = options[g];
  }
  for (auto& [key, state] : states) into.state()[key] = std::move(state);
}

/// The state tensor `what` must be there and have the parameter's sizes.
void check_state_tensor(const char* optimizer, const char* what, const at::Tensor& state,
                        const at::Tensor& param, const std::string& name);

}  // namespace mezzo::optim
