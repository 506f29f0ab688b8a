// Notices steps that the bare optimizer made behind the handle's back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/torch.h"

namespace torch::optim {
class Optimizer;
}

namespace mezzo::amp::detail {

struct Slot;

/// Compares an optimizer's state and its parameters with how they were when it last looked. Traces
/// of steps count: state that was updated in place, and values that moved without the version
/// counter (optim::SGD writes through data()). Loading, copying and moving do not, nor do the steps
/// of other handles that own the same parameter.
class StepWitness {
 public:
  StepWitness();
  ~StepWitness();
  StepWitness(const StepWitness&) = delete;
  StepWitness& operator=(const StepWitness&) = delete;

  /// How things are now is right. Every witness of these parameters takes their values as right.
  void look(const std::vector<Slot>& slots, torch::optim::Optimizer& optimizer);

  /// Was there a step since?
  bool saw_step(const std::vector<Slot>& slots, torch::optim::Optimizer& optimizer) const;

  /// As above, for masters that no host can read: by the state of the first and the last of them.
  bool saw_master_step(const std::vector<Slot>& slots, torch::optim::Optimizer& optimizer) const;

 private:
  struct Value {
    const c10::TensorImpl* parameter = nullptr;
    const c10::StorageImpl* storage = nullptr;
    std::uint32_t version = 0;
    float first = 0;  // value on hosts, if there is one
  };
  struct Seen {
    const void* state = nullptr;
    std::uint64_t updates = 0;  // of the tensors in the state
    Value value;
  };
  static Seen see(const at::Tensor& parameter, torch::optim::Optimizer& optimizer);
  static bool is_step(const Seen& before, const Seen& now);
  void take(const Value& value);

  std::vector<Seen> seen_;  // in the order of the slots
  std::unordered_map<const c10::TensorImpl*, std::size_t> places_;
};

}  // namespace mezzo::amp::detail
