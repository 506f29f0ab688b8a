#include "insight/step_trial.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <exception>
#include <unordered_set>
#include <utility>

#include "amp/generators.h"
#include "amp/model_state.h"
#include "amp/optimizer_state.h"
#include "insight/observer.h"
#include "insight/surroundings.h"
#include "insight/unobserved.h"
#include "parallel/aside.h"

namespace mezzo::insight {

using mezzo::amp::detail::ModelState;
using mezzo::amp::detail::OptimizerState;
using mezzo::amp::detail::Session;
using mezzo::amp::detail::Slot;

namespace {

constexpr std::string_view kInTrial = "explain_overflow";

}  // namespace

StepTrial::StepTrial(const detail::Subject& subject, const std::function<at::Tensor()>& loss,
                     int loss_id, std::optional<double> scale)
    : loss_(loss) {
  if (subject.optimizers.empty()) raise<ConfigError>(kInTrial, "got no optimizer");
  if (!loss) raise<ConfigError>(kInTrial, "got no function that computes the loss");
  for (const amp::Optimizer& optimizer : subject.optimizers) {
    if (optimizer.shared()->slots().capture() == 0) continue;
    raise(kInTrial,
          "a graph is being captured, and a step that is tried out is looked at by the host: call "
          "it before the capture or after a replay");
  }
  std::vector<Session*> sessions;
  const auto add_session = [&](Session& session) {
    if (std::ranges::find(sessions, &session) == sessions.end()) sessions.push_back(&session);
  };
  for (const amp::Optimizer& optimizer : subject.optimizers) {
    optimizers_.push_back(optimizer.shared().get());
    add_session(optimizer.shared()->session());
  }
  for (const auto& model : subject.models) add_session(model->session());
  session_ = sessions.front();
  for (Session* session : sessions) {
    for (const auto& model : session->models()) models_.push_back(model.get());
  }
  std::unordered_set<const c10::TensorImpl*> seen;
  for (OptimizerState* optimizer : optimizers_) {
    for (const Slot& slot : optimizer->slots().all()) {
      if (!slot.weight.requires_grad() || !seen.insert(slot.weight.unsafeGetTensorImpl()).second)
        continue;
      weights_.push_back(slot.weight);
      names_.push_back(session_->name_of(slot.weight));
      for (const at::Tensor& tensor : {slot.weight, slot.master}) {
        if (tensor.defined() && tensor.grad().defined())
          gradients_.emplace_back(tensor, tensor.grad());
      }
    }
  }
  if (weights_.empty()) raise<ConfigError>(kInTrial, "the optimizers have no trainable parameters");
  generators_ = optimizers_.front()->snapshot().last_generator_states();
  scale_ = scale ? *scale : failing_scale(loss_id);
  for (auto& [tensor, gradient] : gradients_) tensor.mutable_grad().reset();
}

StepTrial::~StepTrial() {
  for (const at::Tensor& weight : weights_) weight.mutable_grad().reset();
  for (auto& [tensor, gradient] : gradients_) tensor.mutable_grad() = gradient;
}

/// A skipped step has lowered the scale already.
double StepTrial::failing_scale(int loss_id) const {
  const double now = session_->scaler(loss_id, kInTrial).state().scale;
  if (!session_->enabled()) return 1;
  OptimizerState& optimizer = *optimizers_.front();
  const auto& progress = optimizer.scope().progress();
  if (progress.loss_id != loss_id) return now;
  if (progress.still_scaled) return progress.still_scaled->scale.read();
  if (progress.scale_known && progress.found_inf.defined()) return progress.scale_before.read();
  const auto& last = optimizer.steps().last();
  if (last == nullptr) return now;
  return last->is_skipped() ? last->scale_before.read() : now;
}

std::optional<Policy> StepTrial::policy() const {
  for (const ModelState* model : models_) {
    if (&model->session() == session_) return model->operator_policy();
  }
  return std::nullopt;
}

const StepOutcome& StepTrial::in_float() {
  if (!in_float_) in_float_ = attempt({.all_float = true}, 1);
  return *in_float_;
}

bool StepTrial::has_grown(const at::Tensor& weight) const {
  constexpr double kGrowth = 8;
  for (const auto& optimizer : session_->optimizers()) {
    const std::optional<double> first = optimizer->first_magnitudes().of(weight);
    if (!first) continue;
    const Unobserved unobserved;
    return largest_magnitude(range_of(weight.detach())) > kGrowth * *first;
  }
  return false;
}

StepOutcome StepTrial::attempt(const Precision& precision, double scale, Observer* observer) {
  try {
    return evaluate(precision, scale, observer);
  } catch (const std::exception&) {
    return {.ran = false};
  }
}

StepOutcome StepTrial::evaluate(const Precision& precision, double scale, Observer* observer) {
  ++runs_;
  const parallel::Aside aside;
  const Surroundings surroundings(buffers_of(models_));
  mezzo::amp::detail::set_states_of_generators(generators_);
  const FloatWhile weights(models_, precision);
  const TrialRules rules(models_, precision);
  const at::AutoGradMode records(true);
  std::vector<at::Tensor> gradients;
  at::Tensor loss;
  {
    std::optional<Observer::Watching> watching;
    if (observer != nullptr) watching.emplace(*observer);
    loss = loss_();
    check_loss(loss, kInTrial);
    const at::Tensor root = scaled(loss, scale);
    if (observer != nullptr) observer->follow(root);
    gradients = torch::autograd::grad({root}, weights_, {}, std::nullopt, false,
                                      /*allow_unused=*/true);
  }
  StepOutcome outcome;
  const Unobserved unobserved;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined() || finiteness_of(gradients[i]).finite()) continue;
    if (outcome.bad_gradients.empty()) outcome.first_bad = names_[i];
    outcome.bad_gradients.push_back(gradients[i]);
  }
  if (!finiteness_of(loss.detach()).finite()) outcome.bad_results.push_back(loss.detach());
  outcome.passed = outcome.bad_gradients.empty() && outcome.bad_results.empty();
  return outcome;
}

}  // namespace mezzo::insight
