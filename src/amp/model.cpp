#include "mezzo/model.h"

#include <algorithm>
#include <optional>

#include "amp/cast_listener.h"
#include "amp/gradients.h"
#include "amp/model_state.h"
#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "amp/param_state.h"
#include "casting/scope.h"
#include "casting/weights.h"
#include "mezzo/sync_batch_norm.h"

namespace mezzo::detail {
namespace {

/// For the low type that a network computes in at a whole-model level: that of its first low
/// parameter.
std::optional<Policy> low_policy_of(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.defined() && is_low(parameter)) return Policy::defaults(parameter.scalar_type());
  }
  return std::nullopt;
}

// LibTorch moves values alone.
void move_gradient(const at::Tensor& tensor, bool non_blocking) {
  const at::Tensor& grad = tensor.grad();
  if (!grad.defined() || grad.device() == tensor.device()) return;
  tensor.mutable_grad() = grad.to(tensor.device(), non_blocking);
}

}  // namespace

ModelState::ModelState(Session& session, std::shared_ptr<torch::nn::Module> module)
    : session_(session), module_(std::move(module)), low_policy_(low_policy_of(*module_)) {
  // Frozen weights are cast once as well.
  if (session.enabled() && session.plan().policy) casting::remember_weights(module_->parameters());
}

ModelState::~ModelState() {
  if (session_.enabled() && session_.plan().policy) casting::forget_weights(module_->parameters());
}

void ModelState::snapshot_before_training(Snapshot& snapshot) {
  // Batch norms may have come since.
  if (session_.options().protect_batchnorm) snapshot.watch(batch_norm_statistics(*module_));
  if (std::ranges::find(snapshots_, &snapshot) == snapshots_.end()) snapshots_.push_back(&snapshot);
}

void ModelState::before_call() {
  ++calls_;
  session_.weights().absorb();
  if (!module_->is_training()) return;
  for (Snapshot* snapshot : snapshots_) snapshot->take();
}

amp::TensorCast ModelState::inputs() const {
  const Plan& plan = session_.plan();
  if (!session_.enabled() || !plan.convert) return {};
  return {*plan.convert, plan.convert_doubles};
}

amp::TensorCast ModelState::outputs() const {
  const Plan& plan = session_.plan();
  if (!session_.enabled()) return {};
  if (!plan.outputs) return {at::kFloat, false};
  return {*plan.outputs, true};
}

struct CallGuard::Scopes {
  const parallel::detail::SynchronisedCalls synchronised;
  std::optional<casting::Scope> casting;
};

CallGuard::CallGuard(ModelState& state)
    : inputs(state.inputs()), outputs(state.outputs()), scopes_(std::make_unique<Scopes>()) {
  const Session& session = state.session();
  if (!session.enabled()) return;
  state.before_call();
  const Plan& plan = session.plan();
  if (plan.policy) {
    const bool tells = session.options().verbosity >= 2;
    scopes_->casting.emplace(*plan.policy, casting::Mode::kOperators,
                             tells ? &cast_listener() : nullptr);
  } else if (state.low_policy()) {
    scopes_->casting.emplace(*state.low_policy(), casting::Mode::kWholeModel);
  }
}

CallGuard::~CallGuard() = default;

ModelHandle::ModelHandle(std::shared_ptr<ModelState> state,
                         std::shared_ptr<torch::nn::Module> module)
    : state_(std::move(state)), module_(std::move(module)) {}

const amp::Properties& ModelHandle::properties() const {
  return state_->session().plan().properties;
}

std::vector<at::Tensor> ModelHandle::parameters(bool recurse) const {
  return module_->parameters(recurse);
}

torch::OrderedDict<std::string, at::Tensor> ModelHandle::named_parameters(bool recurse) const {
  return module_->named_parameters(recurse);
}

std::vector<at::Tensor> ModelHandle::buffers(bool recurse) const {
  return module_->buffers(recurse);
}

torch::OrderedDict<std::string, at::Tensor> ModelHandle::named_buffers(bool recurse) const {
  return module_->named_buffers(recurse);
}

void ModelHandle::train(bool on) const {
  module_->train(on);
  if (state_->session().enabled()) casting::invalidate_casts(module_->parameters());
}

void ModelHandle::eval() const {
  train(false);
}

bool ModelHandle::is_training() const {
  return module_->is_training();
}

torch::OrderedDict<std::string, at::Tensor> ModelHandle::named_masters() const {
  WeightTable& weights = state_->session().weights();
  weights.absorb();
  torch::OrderedDict<std::string, at::Tensor> masters;
  for (const auto& item : module_->named_parameters()) {
    const Weight* weight = weights.find(item.value());
    if (weight != nullptr && weight->master.defined()) masters.insert(item.key(), weight->master);
  }
  return masters;
}

void ModelHandle::publish_masters() const {
  WeightTable& weights = state_->session().weights();
  std::vector<Weight*> published;
  for (const at::Tensor& parameter : module_->parameters()) {
    Weight* weight = weights.find(parameter);
    if (weight != nullptr && weight->master.defined()) published.push_back(weight);
  }
  weights.publish(published);
}

void ModelHandle::zero_grad(bool set_to_none) const {
  WeightTable& weights = state_->session().weights();
  const std::vector<at::Tensor> parameters = module_->parameters();
  for (const auto& optimizer : state_->session().optimizers())
    optimizer->clear_stashes(parameters, set_to_none);
  for (at::Tensor parameter : parameters) {
    const Weight* weight = weights.find(parameter);
    const bool has_master = weight != nullptr && weight->master.defined();
    clear_gradient(parameter, set_to_none || has_master);
    if (!has_master) continue;
    at::Tensor master = weight->master;
    clear_gradient(master, set_to_none);
  }
  for (const auto& optimizer : state_->session().optimizers())
    optimizer->scope().forget_cleared(parameters);
}

void ModelHandle::to(at::Device device, bool non_blocking) const {
  module_->to(device, non_blocking);
  Session& session = state_->session();
  session.weights().absorb();
  for (const auto& optimizer : session.optimizers()) optimizer->leave_buckets();
  for (const at::Tensor& parameter : module_->parameters()) move_gradient(parameter, non_blocking);
  for (const auto& optimizer : session.optimizers()) {
    for (const Slot& slot : optimizer->slots().all()) move_gradient(slot.master, non_blocking);
    auto& states = optimizer->inner().state();
    for (Slot& slot : optimizer->slots().all()) {
      const auto found = states.find(slot.master.unsafeGetTensorImpl());
      if (found == states.end()) continue;
      visit_tensors(*found->second, [&](at::Tensor& tensor) {
        // Counts of steps stay on hosts.
        if (tensor.dim() > 0 || slot.weight.dim() == 0)
          tensor = tensor.to(slot.weight.device(), non_blocking);
      });
    }
  }
}

}  // namespace mezzo::detail
