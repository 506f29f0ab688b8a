// A training in one file, from which it continues as if it had never stopped.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "mezzo/export.h"
#include "mezzo/model.h"
#include "mezzo/optimizer.h"

namespace mezzo {
namespace amp {

class Ema;

/// The parts of a checkpoint besides models, optimizers and scales.
struct CheckpointOptions {
  /// Save and restore the state of the default random generators.
  bool rng_state = false;

  /// Save gradients, if there are any, so that an accumulation continues.
  bool gradients = true;

  /// The program's own: moving averages, counters, names. Only used when saving.
  std::map<std::string, at::Tensor> tensors = {};
  std::map<std::string, std::string> entries = {};

  /// Averages of weights (mezzo/ema.h), saved and loaded in this order.
  std::vector<std::reference_wrapper<Ema>> averages = {};
};

/// The program's own entries of a checkpoint.
struct Checkpoint {
  std::map<std::string, at::Tensor> tensors = {};
  std::map<std::string, std::string> entries = {};
};

}  // namespace amp

namespace amp::detail {

using ModelStates = std::vector<std::shared_ptr<ModelState>>;
using OptimizerStates = std::vector<std::shared_ptr<OptimizerState>>;

MEZZO_API void save_training(const std::string& path, const ModelStates& models,
                             const OptimizerStates& optimizers,
                             const amp::CheckpointOptions& options);
MEZZO_API amp::Checkpoint load_training(const std::string& path, const ModelStates& models,
                                        const OptimizerStates& optimizers,
                                        const amp::CheckpointOptions& options);

inline void list_states(const ModelHandle& model, ModelStates& into) {
  into.push_back(model.state());
}
inline void list_states(const amp::Optimizer& optimizer, OptimizerStates& into) {
  into.push_back(optimizer.shared());
}
template <typename Handle, typename States>
void list_states(const std::vector<Handle>& handles, States& into) {
  for (const Handle& handle : handles) list_states(handle, into);
}
template <typename... Handles, typename States>
void list_states(const std::tuple<Handles...>& handles, States& into) {
  std::apply([&](const auto&... handle) { (list_states(handle, into), ...); }, handles);
}

template <typename States, typename Handles>
States states_of(const Handles& handles) {
  States states;
  list_states(handles, states);
  return states;
}

}  // namespace amp::detail

namespace amp {

/// Writes models (float values, from the masters), optimizers, scales with their counters, step
/// counts and what the options ask for. The file is a safetensors file, so that other programs read
/// its weights; it is replaced as a whole, and a symbolic link to it stays. `models` and
/// `optimizers` are one handle each, std::tie(...) of handles, tuples or vectors.
template <typename Models, typename Optimizers>
void save_checkpoint(const std::string& path, const Models& models, const Optimizers& optimizers,
                     const CheckpointOptions& options = {}) {
  detail::save_training(path, detail::states_of<detail::ModelStates>(models),
                        detail::states_of<detail::OptimizerStates>(optimizers), options);
}

/// Restores a training at any time after `initialize`, at the same level or another one. On the
/// same machine, build, thread count and instruction set it continues to the last bit. Throws
/// Error, and changes nothing, for a file that is damaged, truncated, foreign or newer, and for
/// other networks or another class of optimizer.
template <typename Models, typename Optimizers>
Checkpoint load_checkpoint(const std::string& path, const Models& models,
                           const Optimizers& optimizers, const CheckpointOptions& options = {}) {
  return detail::load_training(path, detail::states_of<detail::ModelStates>(models),
                               detail::states_of<detail::OptimizerStates>(optimizers), options);
}

}  // namespace amp
}  // namespace mezzo
