#include "mezzo/model.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <optional>
#include <ostream>

#include "amp/cast_listener.h"
#include "amp/gradients.h"
#include "amp/model_state.h"
#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "amp/param_state.h"
#include "amp/shown_gradients.h"
#include "casting/scope.h"
#include "casting/weights.h"
#include "core/raise.h"
#include "mezzo/reparameterization.h"
#include "mezzo/sync_batch_norm.h"

namespace mezzo::amp::detail {
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
    : session_(session),
      module_(std::move(module)),
      operator_policy_(session.plan().policy),
      low_policy_(low_policy_of(*module_)) {
  float_inputs_ = begins_in_float();
  if (session.enabled() && has_torch_attention(*module_)) keep_scores_in_float();
  // Frozen weights are cast once as well.
  if (session.enabled() && session.plan().policy) casting::remember_weights(module_->parameters());
}

ModelState::~ModelState() {
  if (session_.enabled() && session_.plan().policy) casting::forget_weights(module_->parameters());
}

/// A network whose first layer keeps float, or all of it, takes its inputs as they come: in 16 bits
/// they would lose what that layer keeps float for, and nothing would cast them back.
bool ModelState::begins_in_float() const {
  const Plan& plan = session_.plan();
  if (!session_.enabled() || !plan.convert || !is_low(*plan.convert)) return false;
  const auto kept = session_.kept_float().in(*module_);
  const std::vector<at::Tensor> parameters = module_->parameters();
  if (kept.empty() || parameters.empty()) return false;
  return !low_policy_ || kept.contains(parameters.front().unsafeGetTensorImpl());
}

void ModelState::keep_scores_in_float() {
  std::optional<Policy>& policy = operator_policy_ ? operator_policy_ : low_policy_;
  if (!policy) return;
  policy = policy->with("bmm", CastClass::kFloat);
  session_.say_once(
      "torch attention",
      "mezzo: the network contains torch::nn::MultiheadAttention (TransformerEncoder and the like "
      "do), whose C++ code masks padded keys in float only. Inside this model bmm therefore runs "
      "in float, and so does what lies between its two products: the scores take twice the memory, "
      "and these products the time of float. mezzo::nn::MultiheadAttention has the same options, "
      "parameters and names without that cost");
}

void ModelState::snapshot_before_training(Snapshot& snapshot) {
  // Batch norms may have come since.
  if (session_.options().protect_batchnorm) snapshot.watch(batch_norm_statistics(*module_));
  if (std::ranges::find(snapshots_, &snapshot) == snapshots_.end()) snapshots_.push_back(&snapshot);
}

void ModelState::before_call() {
  if (trial_ != nullptr) return recompute_weights(*module_);
  ++calls_;
  if (session_.explains_skips()) forget_call();
  session_.take_writes();
  recompute_weights(*module_);
  const bool trains = module_->is_training();
  for (const auto& optimizer : session_.optimizers()) {
    if (optimizer->slots().steps(*this))
      optimizer->plain_training().note_call(trains && at::GradMode::is_enabled());
  }
  if (!trains) return;
  if (at::GradMode::is_enabled()) stray_training_.note_training_call();
  for (Snapshot* snapshot : snapshots_) snapshot->take();
}

amp::TensorCast ModelState::inputs() const {
  if (trial_ != nullptr) return trial_->inputs;
  const Plan& plan = session_.plan();
  if (!session_.enabled() || !plan.convert) return {};
  if (float_inputs_) return {at::kFloat, plan.convert_doubles};
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
  std::optional<casting::Disabled> no_casts;  // inside the call of a model that is cast
};

CallGuard::CallGuard(ModelState& state)
    : inputs(state.inputs()),
      outputs(state.outputs()),
      state_(state),
      scopes_(std::make_unique<Scopes>()) {
  const Session& session = state.session();
  if (!session.enabled()) {
    if (!casting::inside_model_call()) return;
    scopes_->no_casts.emplace();
    inputs = {at::kFloat, false};
    return;
  }
  state.before_call();
  if (state.operator_policy()) {
    const bool tells = session.options().verbosity >= 2;
    scopes_->casting.emplace(*state.operator_policy(), casting::Mode::kOperators,
                             tells ? &cast_listener() : nullptr, casting::OpenedBy::kModel);
  } else if (state.low_policy()) {
    scopes_->casting.emplace(*state.low_policy(), casting::Mode::kWholeModel, nullptr,
                             casting::OpenedBy::kModel);
  } else if (casting::inside_model_call()) {
    scopes_->no_casts.emplace();
  }
}

CallGuard::~CallGuard() = default;

void CallGuard::tell_unreached(const std::type_info& type) const {
  Session& session = state_.session();
  if (!session.plan().policy && !state_.low_policy()) return;
  const std::string name = c10::demangle(type.name());
  session.say_once("unreached " + name,
                   "mezzo: a model returns a '" + name +
                       "', which is not looked into: tensors in it leave in the type in which they "
                       "were computed; give it a member to(at::ScalarType) that returns a '" +
                       name + "', or return a struct without constructors and base classes");
}

ModelHandle::ModelHandle(std::shared_ptr<ModelState> state,
                         std::shared_ptr<torch::nn::Module> module)
    : state_(std::move(state)), module_(std::move(module)) {}

const std::shared_ptr<ModelState>& ModelHandle::state() const {
  if (state_ == nullptr) {
    raise<ConfigError>("model",
                       "this handle is empty; assign what initialize returned before it is used");
  }
  return state_;
}

torch::nn::Module& ModelHandle::module() const {
  return state()->module();
}

std::ostream& operator<<(std::ostream& out, const ModelHandle& model) {
  return out << model.state()->module();
}

const amp::Properties& ModelHandle::properties() const {
  return state()->session().plan().properties;
}

std::vector<at::Tensor> ModelHandle::parameters(bool recurse) const {
  return module().parameters(recurse);
}

torch::OrderedDict<std::string, at::Tensor> ModelHandle::named_parameters(bool recurse) const {
  return module().named_parameters(recurse);
}

std::vector<at::Tensor> ModelHandle::buffers(bool recurse) const {
  return module().buffers(recurse);
}

torch::OrderedDict<std::string, at::Tensor> ModelHandle::named_buffers(bool recurse) const {
  return module().named_buffers(recurse);
}

void ModelHandle::train(bool on) const {
  module().train(on);
  Session& session = state()->session();
  if (!session.enabled()) return;
  const std::vector<at::Tensor> parameters = module().parameters();
  session.publish_written_masters();
  session.weights().absorb_values(parameters);
  casting::invalidate_casts(parameters);
}

void ModelHandle::eval() const {
  train(false);
}

bool ModelHandle::is_training() const {
  return module().is_training();
}

torch::OrderedDict<std::string, at::Tensor> ModelHandle::named_masters() const {
  WeightTable& weights = state()->session().weights();
  for (const auto& optimizer : state()->session().optimizers())
    optimizer->steps().unscale_for_program();
  weights.absorb_all_values();
  torch::OrderedDict<std::string, at::Tensor> masters;
  for (const auto& item : module().named_parameters()) {
    Weight* weight = weights.find(item.value());
    if (weight == nullptr || !weight->master.defined()) continue;
    give_memory(*weight);
    masters.insert(item.key(), weight->master);
  }
  return masters;
}

void ModelHandle::publish_masters() const {
  WeightTable& weights = state()->session().weights();
  std::vector<Weight*> published;
  for (const at::Tensor& parameter : module().parameters()) {
    Weight* weight = weights.find(parameter);
    if (weight != nullptr && weight->master.defined()) published.push_back(weight);
  }
  weights.publish(published);
  if (!state()->session().plan().split_masters) return;
  for (Weight* weight : published) split_master(*weight);
}

void ModelHandle::zero_grad(bool set_to_none) const {
  const HiddenGradients hidden(state()->session());
  WeightTable& weights = state()->session().weights();
  const std::vector<at::Tensor> parameters = module().parameters();
  for (const auto& optimizer : state()->session().optimizers())
    optimizer->clear_stashes(parameters, set_to_none);
  for (at::Tensor parameter : parameters) {
    const Weight* weight = weights.find(parameter);
    const bool has_master = weight != nullptr && weight->master.defined();
    clear_gradient(parameter, set_to_none || has_master);
    if (!has_master) continue;
    at::Tensor master = weight->master;
    clear_gradient(master, set_to_none);
  }
  WeightSet mine;
  for (const at::Tensor& parameter : parameters) mine.insert(parameter.unsafeGetTensorImpl());
  for (const auto& optimizer : state()->session().optimizers()) {
    if (state()->session().enabled()) optimizer->gradients().clear_dropped(parameters, set_to_none);
    optimizer->scope().forget_cleared(parameters);
    if (!optimizer->gradients().any_beside(mine)) optimizer->note_cleared();
  }
}

void ModelHandle::to(at::Device device, bool non_blocking) const {
  const HiddenGradients hidden(state()->session());
  Session& session = state()->session();
  session.weights().absorb();
  for (const auto& optimizer : session.optimizers()) optimizer->slots().give_masters_memory();
  module().to(device, non_blocking);
  session.weights().absorb();
  for (const auto& optimizer : session.optimizers()) optimizer->leave_buckets();
  for (const at::Tensor& parameter : module().parameters()) move_gradient(parameter, non_blocking);
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
    optimizer->slots().split_masters();
  }
}

}  // namespace mezzo::amp::detail
