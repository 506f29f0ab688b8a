#include "insight/operator_call.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <string_view>
#include <utility>

#include "amp/generators.h"
#include "casting/scope.h"
#include "casting/weights.h"
#include "core/scalar_type.h"

namespace mezzo::insight {

namespace {

bool is_operand(const at::Tensor& tensor) {
  return tensor.defined() && is_float_or_low(tensor.scalar_type()) &&
         tensor.layout() == at::kStrided && !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

template <typename Visit>
void each_argument(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  }
}

/// The argument with its operands replaced.
template <typename Replace>
c10::IValue replaced(const c10::IValue& value, const Replace& replace) {
  if (value.isTensor()) return is_operand(value.toTensor()) ? replace(value.toTensor()) : value;
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : value.toTensorVector())
    list.push_back(is_operand(tensor) ? replace(tensor) : tensor);
  return list;
}

/// A result that shares an argument's memory without writing it.
bool gives_view(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

/// Repetitions leave no trace in the random numbers.
class GeneratorStates {
 public:
  GeneratorStates() = default;
  ~GeneratorStates() { mezzo::amp::detail::set_states_of_generators(states_); }
  GeneratorStates(const GeneratorStates&) = delete;
  GeneratorStates& operator=(const GeneratorStates&) = delete;

 private:
  std::vector<at::Tensor> states_ = mezzo::amp::detail::states_of_generators();
};

/// Waits for what runs on a device, so that its time is measured.
void finish_devices(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device().is_cpu()) continue;
    c10::impl::getDeviceGuardImpl(tensor.device().type())
        ->synchronizeDevice(tensor.device().index());
    return;
  }
}

/// Rounded to a narrow type with a scale that brings the largest magnitude to the type's end.
at::Tensor rounded_with_scale(const at::Tensor& tensor, at::ScalarType type) {
  const double end = type == at::ScalarType::Float8_e4m3fn ? 448 : 57344;
  const double largest = tensor.detach().abs().max().item<double>();
  if (largest == 0 || !std::isfinite(largest)) return tensor.to(type).to(tensor.scalar_type());
  const double scale = std::exp2(std::floor(std::log2(end / largest)));
  return tensor.mul(scale).to(type).to(tensor.scalar_type()).mul(1 / scale);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::optional<CastRules> current_rules() {
  const casting::Frame* const frame = casting::active_frame();
  if (frame == nullptr || frame->source == nullptr) return std::nullopt;
  return CastRules{*frame->source, frame->rules.mode};
}

std::vector<at::Tensor> floating_tensors(at::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    each_argument(value, [&](const at::Tensor& tensor) {
      if (is_operand(tensor)) tensors.push_back(tensor);
    });
  }
  return tensors;
}

std::optional<OperatorCall> OperatorCall::of(const at::RecordFunction& call) {
  const std::optional<c10::OperatorName> name = call.operator_name();
  if (!name) return std::nullopt;
  auto handle = c10::Dispatcher::singleton().findSchema(*name);
  if (!handle || call.inputs().size() != handle->schema().arguments().size()) return std::nullopt;
  OperatorCall result(*handle);
  const std::string_view text = name->name;
  result.name_ = text.starts_with("aten::") ? text.substr(6) : text;
  result.overload_ = result.name_;
  if (!name->overload_name.empty()) result.overload_ += "." + name->overload_name;
  result.arguments_.assign(call.inputs().begin(), call.inputs().end());
  for (const c10::IValue& value : result.arguments_) {
    each_argument(value, [&](const at::Tensor& tensor) {
      if (tensor.defined()) result.tensors_.push_back(tensor);
      if (is_operand(tensor)) result.inputs_.push_back(tensor);
    });
  }
  constexpr std::array<std::string_view, 4> kCasts{"to", "_to_copy", "type_as", "_autocast_to"};
  result.is_cast_ = std::ranges::find(kCasts, result.name_) != kCasts.end();
  result.writes_ = handle->schema().is_mutable();
  result.computes_ = !result.inputs_.empty() && !result.is_cast_ && result.name_ != "copy_" &&
                     !gives_view(handle->schema());
  return result;
}

std::vector<at::ScalarType> OperatorCall::types() const {
  std::vector<at::ScalarType> types;
  for (const at::Tensor& tensor : inputs_) types.push_back(tensor.scalar_type());
  return types;
}

Repeat OperatorCall::repeat(const InputTypes& types, const std::optional<CastRules>& rules,
                            bool records) const {
  Repeat result;
  const at::DisableRecordFunctionGuard silent;
  const GeneratorStates states;
  const at::AutoGradMode mode(records && at::GradMode::is_enabled());
  const casting::WeightKeeping keeps_none(false);
  int place = 0;
  const auto replace = [&](const at::Tensor& tensor) {
    const int here = place++;
    const auto index = static_cast<std::size_t>(here);
    at::Tensor leaf = tensor.detach();
    // Before the leaf, so that gradients are not rounded.
    if (index < types.held.size()) leaf = leaf.to(types.held[index]).to(at::kFloat);
    const bool trains = at::GradMode::is_enabled() && tensor.requires_grad();
    if (trains) leaf.requires_grad_(true);
    result.leaves.push_back(trains ? leaf : at::Tensor());
    const at::ScalarType type =
        index < types.types.size() ? types.types[index] : at::ScalarType::Undefined;
    const bool is_cast = type != at::ScalarType::Undefined && type != leaf.scalar_type();
    if (is_cast && types.scaled) return rounded_with_scale(leaf, type);
    if (is_cast && types.rounded < 0 && !types.back) return leaf.to(type);
    if (is_cast && (types.rounded == here || types.back))
      return leaf.to(type).to(leaf.scalar_type());
    // Statistics that norms update are arguments that need no gradient.
    return writes_ || !trains ? leaf.clone() : at::alias(leaf);
  };
  try {
    std::vector<c10::IValue> stack;
    for (const c10::IValue& value : arguments_) stack.push_back(replaced(value, replace));
    std::optional<casting::Scope> scope;
    if (rules) scope.emplace(rules->policy, rules->mode);
    finish_devices(inputs_);
    const auto start = std::chrono::steady_clock::now();
    handle_.callBoxed(stack);
    finish_devices(inputs_);
    result.seconds = seconds_since(start);
    result.outputs = floating_tensors(stack);
    result.ran = true;
  } catch (const std::exception&) {
    result.ran = false;  // no such kernel: the program's own call will say so
  }
  return result;
}

std::vector<at::Tensor> gradients_of(const Repeat& repeat, const std::vector<at::Tensor>& outputs,
                                     double* seconds) {
  std::vector<at::Tensor> roots, given, leaves;
  for (std::size_t i = 0; i < std::min(repeat.outputs.size(), outputs.size()); ++i) {
    const at::Tensor& output = repeat.outputs[i];
    if (!outputs[i].defined() || !output.requires_grad() || output.sizes() != outputs[i].sizes())
      continue;
    roots.push_back(output);
    given.push_back(outputs[i].detach().to(output.scalar_type()));
  }
  for (const at::Tensor& leaf : repeat.leaves) {
    if (leaf.defined()) leaves.push_back(leaf);
  }
  if (roots.empty() || leaves.empty()) return {};
  const at::DisableRecordFunctionGuard silent;
  const GeneratorStates states;
  std::vector<at::Tensor> found, all(repeat.leaves.size());
  try {
    finish_devices(roots);
    const auto start = std::chrono::steady_clock::now();
    found = torch::autograd::grad(roots, leaves, given, std::nullopt, false, /*allow_unused=*/true);
    finish_devices(roots);
    if (seconds != nullptr) *seconds = seconds_since(start);
  } catch (const std::exception&) {
    return {};
  }
  for (std::size_t i = 0, next = 0; i < all.size(); ++i) {
    if (repeat.leaves[i].defined()) all[i] = found[next++].detach();
  }
  return all;
}

}  // namespace mezzo::insight
