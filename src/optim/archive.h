// Archives in the layout of torch::optim, so that state carries over between its optimizers and
// ours. Loading checks everything first and changes nothing when something does not fit.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/raise.h"
#include "mezzo/optim.h"
#include "optim/checks.h"

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

/// Throws Error if the archive has other groups than the optimizer.
SavedOptimizer read_optimizer(const char* optimizer, torch::serialize::InputArchive& archive,
                              const ParamGroups& groups);

/// Options as they are with what the archive has of them. Throws Error if it has others too,
/// which are another optimizer's, or numbers that are out of range.
template <typename T>
T read_options(const char* optimizer, torch::serialize::InputArchive& archive, T options) {
  std::vector<std::string> known;
  T::each(options, [&](const char* name, const auto&) { known.emplace_back(name); });
  for (const std::string& name : archive.keys()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      raise(optimizer, "the saved options have '", name, "': they are another optimizer's");
    }
  }
  static_cast<Options&>(options).serialize(archive);
  options.check();
  return options;
}

/// Replaces all states, by those of type State that were saved, and options of type T.
/// `check(state, parameter)` throws if a state does not fit its parameter.
template <typename State, typename T, typename Check>
void load_optimizer(const char* optimizer, torch::serialize::InputArchive& archive,
                    torch::optim::Optimizer& into, const Check& check) {
  SavedOptimizer saved = read_optimizer(optimizer, archive, into.param_groups());
  std::vector<T> options;
  std::vector<std::pair<void*, std::unique_ptr<State>>> states;
  for (std::size_t g = 0; g < saved.groups.size(); ++g) {
    auto& group = into.param_groups()[g];
    options.push_back(read_options<T>(optimizer, saved.groups[g].options,
                                      options_as<T>(optimizer, group.options())));
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
  into.state().clear();
  for (auto& [key, state] : states) into.state()[key] = std::move(state);
}

/// Both moments must be there and have the parameter's sizes, and so the largest second moment if
/// it is there.
void check_moments(const char* optimizer, const torch::optim::AdamParamState&,
                   const at::Tensor& param, const std::string& name);

/// The state tensor `what` must be there and have the parameter's sizes.
void check_state_tensor(const char* optimizer, const char* what, const at::Tensor& state,
                        const at::Tensor& param, const std::string& name);

}  // namespace mezzo::optim
