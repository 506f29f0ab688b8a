// One training step's end over a list of parameters: unscale, check, update, low-precision copy;
// ours and others' ways to do it.
#pragma once

#include <functional>
#include <string>

#include "core/torch.h"
#include "parameter_lists.h"

namespace mezzo::bench {

enum class Rule { kAdamW, kSgd };  // SGD with momentum

/// The operands of a step; every contestant has its own.
struct StepCase {
  ParameterList list;
  at::ScalarType grad = at::kFloat;
  at::ScalarType copy = at::kBFloat16;
  Rule rule = Rule::kAdamW;
  bool splits = false;  // ours: bfloat16 weights and what they lack of their masters
};

/// A step that can be called again and again. It owns its tensors.
struct Contestant {
  std::string name;
  std::function<void()> step;
};

/// FusedAdam or FusedSGD, checked.
Contestant ours(const StepCase&);
/// As under a level without `defer_unscale`: float gradients are looked at and unscaled in place
/// where the scope of the loss ends, and the step follows.
Contestant ours_unscaled_before(const StepCase&);
/// Its second pass alone: nobody looks at the gradients.
Contestant our_update(const StepCase&);
/// The same work by LibTorch's foreach and fused operators. With 16-bit gradients the check runs
/// either on them or on the float gradients; `check_low` says which.
Contestant composite(const StepCase&, bool check_low);
/// torch::optim's class, with the foreach check before it and the foreach copy after it.
Contestant torch_optim(const StepCase&);

/// Bytes per parameter that ours moves: gradients twice, weight and state in and out, the copy, or
/// with split masters what stands beside the weight.
double step_bytes(const StepCase&);

/// Gradients like a network's, for those that are measured alone.
std::vector<at::Tensor> make_gradients(const StepCase&);

}  // namespace mezzo::bench
