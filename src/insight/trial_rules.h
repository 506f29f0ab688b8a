// Puts networks into another precision for a while, and takes the loss of a step as scale_loss
// does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "amp/model_state.h"
#include "core/autograd_node.h"
#include "core/torch.h"
#include "mezzo/policy.h"

namespace mezzo::insight {

/// How a step is run.
struct Precision {
  bool all_float = false;                    // neither casts nor low weights
  std::optional<Policy> policy = {};         // in place of the level's
  std::vector<std::string> keep_float = {};  // besides what the level keeps
};

/// Low weights and buffers that are float for a while, with their masters' values.
class FloatWhile {
 public:
  FloatWhile(const std::vector<mezzo::amp::detail::ModelState*>& models,
             const Precision& precision);
  ~FloatWhile();
  FloatWhile(const FloatWhile&) = delete;
  FloatWhile& operator=(const FloatWhile&) = delete;

 private:
  struct Changed {
    at::Tensor tensor;
    at::Tensor data;
    NodePointer accumulator;
  };
  void widen(mezzo::amp::detail::ModelState& model, const at::Tensor& tensor);

  std::vector<Changed> changed_;
};

/// Models run by the trial's rules while it lives, and their calls leave no trace in the session.
class TrialRules {
 public:
  TrialRules(const std::vector<mezzo::amp::detail::ModelState*>& models,
             const Precision& precision);
  ~TrialRules();
  TrialRules(const TrialRules&) = delete;
  TrialRules& operator=(const TrialRules&) = delete;

 private:
  const std::vector<mezzo::amp::detail::ModelState*>& models_;
  std::vector<mezzo::amp::detail::ModelState::Trial> trials_;
};

std::vector<at::Tensor> buffers_of(const std::vector<mezzo::amp::detail::ModelState*>& models);

/// As ScaledLoss multiplies.
at::Tensor scaled(const at::Tensor& loss, double scale);

/// ConfigError from `where` for what scale_loss would not take.
void check_loss(const at::Tensor& loss, std::string_view where);

}  // namespace mezzo::insight
