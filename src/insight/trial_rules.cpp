#include "insight/trial_rules.h"

#include <torch/nn/module.h>

#include <unordered_set>

#include "amp/kept_float.h"
#include "amp/module_types.h"
#include "core/raise.h"

namespace mezzo::insight {

using mezzo::amp::detail::ModelState;

FloatWhile::FloatWhile(const std::vector<ModelState*>& models, const Precision& precision) {
  if (!precision.all_float && precision.keep_float.empty()) return;
  const mezzo::amp::detail::KeptFloat kept(precision.keep_float);
  for (ModelState* model : models) {
    const auto named = precision.all_float ? std::unordered_set<const c10::TensorImpl*>()
                                           : kept.in(model->module());
    for (const auto& tensors : {model->module().parameters(), model->module().buffers()}) {
      for (const at::Tensor& tensor : tensors) {
        if (!tensor.defined() || !mezzo::amp::detail::is_low(tensor)) continue;
        if (precision.all_float || named.contains(tensor.unsafeGetTensorImpl()))
          widen(*model, tensor);
      }
    }
  }
}

FloatWhile::~FloatWhile() {
  for (auto& [tensor, data, accumulator] : changed_) {
    tensor.set_data(data);
    if (accumulator != nullptr) set_accumulator(tensor, accumulator);
  }
}

void FloatWhile::widen(ModelState& model, const at::Tensor& tensor) {
  const mezzo::amp::detail::Weight* weight = model.session().weights().find(tensor);
  const bool has_master = weight != nullptr && weight->master.defined();
  at::Tensor values = has_master ? amp::detail::master_value(*weight).clone()
                                 : tensor.variable_data().to(at::kFloat);
  changed_.push_back(
      {tensor, tensor.variable_data(), torch::autograd::impl::try_get_grad_accumulator(tensor)});
  changed_.back().tensor.set_data(values);
}

namespace {

/// Casts nothing down. Tensors that the program itself made low meet float weights and follow them.
const Policy& products_in_float() {
  static const Policy policy = [] {
    Policy all = Policy::defaults();
    for (const std::string& name : list_lp16_ops(at::kHalf))
      all = all.with(name, CastClass::kFloat);
    return all;
  }();
  return policy;
}

/// As initialize does: a network whose first parameter or all of which is kept gets its inputs in
/// float.
bool gets_float(const ModelState& model, const std::vector<std::string>& keep_float) {
  const auto& plan = model.session().plan();
  const auto kept = mezzo::amp::detail::KeptFloat(keep_float).in(model.module());
  const std::vector<at::Tensor> parameters = model.module().parameters();
  if (!plan.convert || kept.empty() || parameters.empty()) return false;
  return kept.contains(parameters.front().unsafeGetTensorImpl()) ||
         mezzo::amp::detail::first_low_name(model.module()).empty();
}

}  // namespace

TrialRules::TrialRules(const std::vector<ModelState*>& models, const Precision& precision)
    : models_(models), trials_(models.size()) {
  for (std::size_t i = 0; i < models.size(); ++i) {
    ModelState& model = *models[i];
    ModelState::Trial& trial = trials_[i];
    if (precision.all_float) {
      trial.inputs = {at::kFloat, false};
      trial.operator_policy = products_in_float();
    } else {
      trial.inputs = model.inputs();
      if (gets_float(model, precision.keep_float)) trial.inputs.to = at::kFloat;
      // As initialize does: a network without low weights is no low one.
      if (!mezzo::amp::detail::first_low_name(model.module()).empty())
        trial.low_policy = model.low_policy();
      trial.operator_policy = model.operator_policy();
      if (precision.policy && trial.operator_policy) trial.operator_policy = precision.policy;
    }
  }
  for (std::size_t i = 0; i < models.size(); ++i) models[i]->set_trial(&trials_[i]);
}

TrialRules::~TrialRules() {
  for (ModelState* model : models_) model->set_trial(nullptr);
}

std::vector<at::Tensor> buffers_of(const std::vector<ModelState*>& models) {
  std::vector<at::Tensor> buffers;
  for (const ModelState* model : models) {
    const std::vector<at::Tensor> more = model->module().buffers();
    buffers.insert(buffers.end(), more.begin(), more.end());
  }
  return buffers;
}

at::Tensor scaled(const at::Tensor& loss, double scale) {
  const at::Tensor wide = mezzo::amp::detail::is_low(loss) ? loss.to(at::kFloat) : loss;
  return scale == 1 ? wide : wide * scale;
}

void check_loss(const at::Tensor& loss, std::string_view where) {
  if (loss.defined() && loss.is_floating_point() && loss.numel() == 1 && loss.requires_grad())
    return;
  raise<ConfigError>(where,
                     "the function returned no differentiable loss; expected one element that "
                     "depends on the model's parameters, as scale_loss takes it");
}

}  // namespace mezzo::insight
