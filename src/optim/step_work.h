// Everything that one fused step needs to know about its parameters, gathered and checked before
// anything moves. The memory is kept from step to step, so that a steady step allocates nothing.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bridge/overlap.h"
#include "bridge/prefetch.h"
#include "bridge/workers.h"
#include "kernels/multi_tensor.h"
#include "kernels/recipes.h"
#include "optim/device_rows.h"
#include "optim/states.h"
#include "optim/step_context.h"
#include "optim/tensor_elements.h"

namespace mezzo::optim {

/// One parameter of this step; the entry of the same index in `rows` is its memory.
struct Stepped {
  const at::Tensor* param = nullptr;
  std::size_t group = 0;
  std::size_t index = 0;  // in its group
};

/// A parameter on a device that has no kernels of ours: LibTorch's operators update it. Its entry
/// in `rows` is empty.
struct Elsewhere {
  std::size_t row = 0;
  at::Tensor grad;
  LowCopy lent;
};

/// "parameter 3 of group 0 (Float [2, 3] on cpu)".
std::string name_of(const Stepped&);

class StepWork {
 public:
  std::shared_ptr<StepContext> context;

  std::vector<Stepped> parameters;
  std::vector<kernels::StepRow> rows;
  /// Factors on the gradients of a group beside the inverse scale: clipping.
  std::vector<double> group_factor;
  kernels::Guard guard;
  std::vector<Elsewhere> elsewhere;
  /// Those whose memory the CUDA kernels work on. In `rows` they have no elements.
  DeviceRows device;
  kernels::Lists lists{bridge::torch_workers()};

  /// Numbers of each parameter's gradient, for optimizers that step by them.
  struct Norms {
    std::vector<double> squares, largest, kept;
  } norms;

  /// The state of each row, once for_each_state() has been through; null if none is kept.
  std::vector<torch::optim::OptimizerParamState*> states;
  /// Which of them were made for this step.
  std::vector<bool> fresh;

  /// visit(row, state) for each row in turn, the state made if missing, and null unless
  /// `keeps(row)`. `tensors` are what a visit will ask of it.
  template <typename State, typename Keeps, typename Visit>
  void for_each_state(torch::optim::Optimizer& optimizer,
                      std::initializer_list<at::Tensor& (State::*)() noexcept> tensors,
                      const Keeps& keeps, const Visit& visit) {
    auto& known = optimizer.state();
    const auto state_of = [this](std::size_t i) { return static_cast<State*>(states[i]); };
    const auto each_tensor = [&](std::size_t i, const auto& use) {
      if (states[i] == nullptr) return;
      for (const auto tensor : tensors) use((state_of(i)->*tensor)());
    };
    const auto find = [&](std::size_t i) {
      states.push_back(nullptr);
      fresh.push_back(false);
      if (!keeps(i)) return;
      auto& slot = known[parameters[i].param->unsafeGetTensorImpl()];
      fresh.back() = slot == nullptr;
      if (!slot) slot = std::make_unique<State>();
      states.back() = slot.get();
      bridge::prefetch_bytes(slot.get(), sizeof(State));
    };
    try {
      bridge::in_blocks(
          rows.size(), find, [&](std::size_t i) { each_tensor(i, bridge::prefetch); },
          [&](std::size_t i) { each_tensor(i, bridge::prefetch_parts); },
          [&](std::size_t i) { visit(i, state_of(i)); });
    } catch (...) {
      // The step does not happen: what was made for it would pass for the state of an earlier one.
      for (std::size_t i = 0; i < fresh.size(); ++i) {
        if (fresh[i]) known.erase(parameters[i].param->unsafeGetTensorImpl());
      }
      throw;
    }
  }

  /// As above, where every row has a state.
  template <typename State, typename Visit>
  void for_each_state(torch::optim::Optimizer& optimizer,
                      std::initializer_list<at::Tensor& (State::*)() noexcept> tensors,
                      const Visit& visit) {
    for_each_state<State>(
        optimizer, tensors, [](std::size_t) { return true; }, visit);
  }

  /// Counts this step in all states but those on devices, whose kernels count what they took.
  template <typename State>
  void count_step() {
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (!device.has(i)) ++static_cast<State*>(states[i])->step();
    }
  }

  /// The settings for a row whose state counts its steps on the device.
  template <typename State>
  HostState counted(std::size_t i) const {
    return {static_cast<const State*>(states[i])->step(), fresh[i]};
  }

  /// An empty table of the step's numbers.
  template <typename Scalars>
  ScalarTable<Scalars>& table() {
    auto* own = std::get_if<ScalarTable<Scalars>>(&table_);
    if (own == nullptr) own = &table_.emplace<ScalarTable<Scalars>>();
    own->clear();
    return *own;
  }

  /// The settings of each group.
  template <typename Recipe>
  const std::vector<Recipe>& recipes_of(const ParamGroups& groups,
                                        Recipe (*recipe_of)(const Options&)) {
    auto* own = std::get_if<std::vector<Recipe>>(&recipes_);
    if (own == nullptr) own = &recipes_.emplace<std::vector<Recipe>>();
    own->clear();
    for (const auto& group : groups) own->push_back(recipe_of(group.options()));
    return *own;
  }

  /// Finds the parameters with gradients, checks them and fills `rows` but for their states.
  void gather(const char* optimizer, ParamGroups& groups);

  /// Throws Error if a graph is being captured that could not hold the step of these parameters.
  void check_capture(const char* optimizer) const;

  /// Has a parameter left the device that counts its steps?
  bool any_moved() const;

  /// Is every gradient finite? Reads all of them, writes nothing.
  bool gradients_finite();

  /// The norm of all gradients as they stand, each tensor's in `per_tensor` if given; that knows
  /// nothing of rows on devices, whose kernels find their own.
  double gradient_norm(kernels::Norm norm = kernels::Norm::kTwo,
                       std::vector<double>* per_tensor = nullptr);

  /// The memory of a parameter's state tensor: made anew, zeros, if undefined; converted and laid
  /// out as the kernels read it if a file or another optimizer left it otherwise.
  void* state_memory(at::Tensor& state, const Stepped& of);

  /// The factor on the gradient of a row that LibTorch's operators step.
  double gradient_factor(std::size_t row) const;

  /// The values that an element's arithmetic starts from, in the type it computes in, and where its
  /// result goes.
  TensorElements weight_of(const Elsewhere&) const;
  TensorElements gradient_of(const Elsewhere&) const;
  void write_weight(const Elsewhere&, const TensorElements&) const;

  /// Bumps the versions of weights and copies.
  void bump_versions();

  /// Lets go of everything borrowed; the memory stays.
  void release();

 private:
  /// The inputs of a parameter's step.
  struct Asked {
    LowCopy lent;
    const at::Tensor* grad = nullptr;  // the lent one or its own; may be undefined
  };
  void gather_group(const char* optimizer, const std::vector<at::Tensor>& params,
                    std::size_t group);
  Asked ask(const char* optimizer, const Stepped& stepped);
  void add(const char* optimizer, const Stepped& stepped, const Asked& asked);
  void add_copy(const char* optimizer, const Stepped& stepped, const LowCopy& lent,
                kernels::StepRow& row);
  void add_split(const char* optimizer, const Stepped& stepped, const LowCopy& lent,
                 kernels::StepRow& row);
  void add_elsewhere(const char* optimizer, const Stepped& stepped, const Asked& asked);
  at::Tensor readable_gradient(const char* optimizer, const Stepped& stepped,
                               const at::Tensor& grad, bool like_double);
  void check_overlaps(const char* optimizer);
  void check_gradients_apart(const char* optimizer);

  AnyScalarTable table_;
  AnyRecipes recipes_;
  std::vector<Asked> asked_;  // of one group
  std::vector<at::Tensor> held_;
  std::vector<LowCopy> lent_;
  std::vector<kernels::Input> gradients_;
  struct Written {
    const void *param, *copy, *remainder;
    std::size_t bytes;  // of the weight; 0 if LibTorch's operators step it
    kernels::CopyKind copy_kind;
    friend bool operator==(const Written&, const Written&) = default;
  };
  struct Read {
    const void* grad = nullptr;
    DType dtype = DType::kFloat32;
    friend bool operator==(const Read&, const Read&) = default;
  };
  Written written_by(std::size_t row) const;
  std::vector<Written> seen_;            // what check_overlaps() found good last
  std::vector<Read> seen_gradients_;     // what check_gradients_apart() found good since
  std::vector<bridge::Extent> extents_;  // of weights and copies, by address
};

}  // namespace mezzo::optim
