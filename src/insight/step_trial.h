// Runs a step of training again, in another precision if wanted, and leaves no trace of it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/torch.h"
#include "insight/trial_rules.h"
#include "mezzo/insight_explain.h"
#include "mezzo/policy.h"

namespace mezzo::amp::detail {
class ModelState;
class OptimizerState;
class Session;
}  // namespace mezzo::amp::detail

namespace mezzo::insight {

class Observer;

/// The outcome of a run of the step.
struct StepOutcome {
  bool ran = true;      // no exception
  bool passed = false;  // it ran, and the loss and all gradients are finite
  std::vector<at::Tensor> bad_gradients = {};
  std::vector<at::Tensor> bad_results = {};  // the loss, if it is not finite
  std::string first_bad = {};                // the parameter of the first of them
};

/// The step of a training loop. While it lives, gradients are set aside; they, buffers and
/// generators are given back by each run and at the end.
class StepTrial {
 public:
  static constexpr int kMostRuns = 12;

  /// `scale`: of the loss; unset: that of the step that failed.
  StepTrial(const detail::Subject& subject, const std::function<at::Tensor()>& loss, int loss_id,
            std::optional<double> scale = {});
  ~StepTrial();
  StepTrial(const StepTrial&) = delete;
  StepTrial& operator=(const StepTrial&) = delete;

  /// The scale of the step that failed.
  double scale() const noexcept { return scale_; }
  int runs() const noexcept { return runs_; }
  bool may_run() const noexcept { return runs_ < kMostRuns; }

  /// Runs it as it was. Throws what it throws.
  StepOutcome run(Observer& observer) { return evaluate({}, scale_, &observer); }
  /// Runs it without casts and loss scale; asked again, it is not run again.
  const StepOutcome& in_float();
  bool fails_in_float() { return in_float().ran && !in_float().passed; }
  /// Is a weight many times as large as when an optimizer first moved it?
  bool has_grown(const at::Tensor& weight) const;

  /// Runs it in another way; where that throws, it has not passed.
  StepOutcome attempt(const Precision& precision, double scale, Observer* observer = nullptr);

  const std::vector<mezzo::amp::detail::ModelState*>& models() const noexcept { return models_; }
  /// The session of the first optimizer: its level is the one that is reported.
  mezzo::amp::detail::Session& session() const noexcept { return *session_; }
  /// The operators' policy at levels that have one.
  std::optional<Policy> policy() const;

 private:
  struct Kept;
  StepOutcome evaluate(const Precision& precision, double scale, Observer* observer);
  double failing_scale(int loss_id) const;

  const std::function<at::Tensor()>& loss_;
  std::vector<mezzo::amp::detail::ModelState*> models_;
  std::vector<mezzo::amp::detail::OptimizerState*> optimizers_;
  mezzo::amp::detail::Session* session_ = nullptr;
  std::vector<at::Tensor> weights_;     // whose gradients decide
  std::vector<std::string> names_;      // theirs
  std::vector<at::Tensor> generators_;  // states at the step that failed
  double scale_ = 1;
  int runs_ = 0;
  std::optional<StepOutcome> in_float_;
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;  // of weights and masters, set aside
};

}  // namespace mezzo::insight
