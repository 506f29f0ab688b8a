#include "optim/step_work.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include "bridge/device.h"
#include "bridge/prefetch.h"
#include "bridge/tensors.h"

namespace mezzo::optim {
namespace {

kernels::CopyKind copy_kind_of(const LowCopy& lent) {
  using kernels::CopyKind;
  const at::ScalarType type = lent.copy->scalar_type();
  if (!lent.rounded_to) {
    if (type == at::kHalf) return CopyKind::kFloat16;
    if (type == at::kBFloat16) return CopyKind::kBFloat16;
    if (type == at::kFloat) return CopyKind::kFloat32;
  } else if (type == at::kFloat) {
    if (*lent.rounded_to == at::kHalf) return CopyKind::kRoundedToFloat16;
    if (*lent.rounded_to == at::kBFloat16) return CopyKind::kRoundedToBFloat16;
  }
  return CopyKind::kNone;
}

bool reads_directly(const at::Tensor& grad, const at::Tensor& param) {
  return bridge::is_dense(grad) && bridge::same_layout(grad, param);
}

}  // namespace

std::string name_of(const Stepped& stepped) {
  std::ostringstream text;
  text << "parameter " << stepped.index << " of group " << stepped.group << " ("
       << bridge::describe(*stepped.param) << ')';
  return text.str();
}

void StepWork::gather(const char* optimizer, ParamGroups& groups) {
  release();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    gather_group(optimizer, groups[group].params(), group);
  }
  group_factor.assign(groups.size(), 1.0);
  check_overlaps(optimizer);
  check_gradients_apart(optimizer);
}

void StepWork::gather_group(const char* optimizer, const std::vector<at::Tensor>& params,
                            std::size_t group) {
  asked_.clear();
  bridge::in_blocks(
      params.size(), [&](std::size_t i) { bridge::prefetch(params[i]); },
      [&](std::size_t i) { bridge::prefetch_parts(params[i]); },
      [&](std::size_t i) {
        const Asked& asked = asked_.emplace_back(ask(optimizer, {&params[i], group, i}));
        bridge::prefetch(*asked.grad);
        if (asked.lent.copy != nullptr) bridge::prefetch(*asked.lent.copy);
      },
      [&](std::size_t i) {
        bridge::prefetch_parts(*asked_[i].grad);
        if (asked_[i].lent.copy != nullptr) bridge::prefetch_parts(*asked_[i].lent.copy);
      },
      [&](std::size_t i) {
        if (asked_[i].grad->defined()) add(optimizer, {&params[i], group, i}, asked_[i]);
      });
}

StepWork::Asked StepWork::ask(const char* optimizer, const Stepped& stepped) {
  const at::Tensor& param = *stepped.param;
  if (!param.defined()) {
    raise<ConfigError>(optimizer, "parameter ", stepped.index, " of group ", stepped.group,
                       " is undefined");
  }
  Asked asked;
  if (context) asked.lent = context->low_copy(param);
  asked.grad = asked.lent.source_grad != nullptr ? asked.lent.source_grad : &param.grad();
  return asked;
}

void StepWork::add(const char* optimizer, const Stepped& stepped, const Asked& asked) {
  const at::Tensor& param = *stepped.param;
  if (!bridge::has_kernels(param.device(), bridge::Family::kSteps)) {
    return add_elsewhere(optimizer, stepped, asked);
  }
  const auto param_dtype = bridge::kernel_dtype(param.scalar_type());
  if (!param_dtype || param.layout() != at::kStrided) {
    bridge::check_kernel_tensor(optimizer, name_of(stepped), param, bridge::Family::kSteps);
  }
  if (!bridge::is_dense(param)) {
    raise<ConfigError>(optimizer, name_of(stepped), " has strides ", param.strides(),
                       ", with holes or overlaps; expected a dense tensor");
  }
  const at::Tensor* grad = asked.grad;
  const auto grad_dtype = bridge::kernel_dtype(grad->scalar_type());
  const bool is_double = *param_dtype == DType::kFloat64;
  const bool direct = grad_dtype && grad->device() == param.device() &&
                      grad->layout() == at::kStrided && grad->sizes() == param.sizes() &&
                      (is_double || *grad_dtype != DType::kFloat64) && reads_directly(*grad, param);
  if (!direct) {
    held_.push_back(readable_gradient(optimizer, stepped, *grad, is_double));
    grad = &held_.back();
  }
  if (asked.lent.rest == nullptr && !bridge::has_memory(param)) {
    raise<ConfigError>(optimizer, name_of(stepped),
                       " is a split master, which has no memory; call step() of the handle that "
                       "initialize returned");
  }
  kernels::StepRow& row = rows.emplace_back();
  row.param = asked.lent.rest == nullptr ? param.mutable_data_ptr() : nullptr;
  row.grad = grad->const_data_ptr();
  row.count = param.numel();
  row.param_dtype = *param_dtype;
  row.grad_dtype = direct ? *grad_dtype : *bridge::kernel_dtype(grad->scalar_type());
  if (asked.lent.rest != nullptr) {
    add_split(optimizer, stepped, asked.lent, row);
  } else if (asked.lent.copy != nullptr) {
    add_copy(optimizer, stepped, asked.lent, row);
  }
  lent_.push_back(asked.lent);
  parameters.push_back(stepped);
  if (const auto* cuda = bridge::cuda_kernels(param.device(), bridge::Family::kSteps))
    device.add(rows.size() - 1, *cuda, param, row);
}

void StepWork::add_elsewhere(const char* optimizer, const Stepped& stepped, const Asked& asked) {
  const at::Tensor& param = *stepped.param;
  const at::Tensor& grad = *asked.grad;
  const LowCopy& lent = asked.lent;
  if (lent.rest != nullptr) {
    raise<ConfigError>(optimizer, name_of(stepped),
                       " is a split master, and its device has no "
                       "kernels; set split_masters to false");
  }
  for (const at::Tensor& tensor : {param, grad}) {
    if (tensor.layout() != at::kStrided || !bridge::kernel_dtype(tensor.scalar_type()) ||
        tensor.sizes() != param.sizes() || tensor.device() != param.device()) {
      raise<ConfigError>(optimizer, tensor.is_same(param) ? "" : "the gradient of ",
                         name_of(stepped), " is ", bridge::describe(tensor),
                         "; expected a dense floating-point tensor of the parameter's sizes");
    }
  }
  if (lent.copy != nullptr &&
      (copy_kind_of(lent) == kernels::CopyKind::kNone || lent.copy->sizes() != param.sizes())) {
    raise<ConfigError>(optimizer, "the low-precision copy (", bridge::describe(*lent.copy),
                       ") does not fit ", name_of(stepped));
  }
  elsewhere.push_back({rows.size(), grad, lent});
  kernels::StepRow row;
  row.param_dtype = *bridge::kernel_dtype(param.scalar_type());
  lent_.push_back(lent);
  rows.push_back(row);
  parameters.push_back(stepped);
}

double StepWork::gradient_factor(std::size_t row) const {
  const double scale = guard.inv_scale == nullptr ? 1 : static_cast<double>(*guard.inv_scale);
  return scale * group_factor[parameters[row].group];
}

TensorElements StepWork::weight_of(const Elsewhere& e) const {
  const at::Tensor& param = *parameters[e.row].param;
  return {param.detach().to(param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat)};
}

TensorElements StepWork::gradient_of(const Elsewhere& e) const {
  const at::Tensor& param = *parameters[e.row].param;
  const at::Tensor wide =
      e.grad.detach().to(param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return {wide.mul(gradient_factor(e.row))};
}

void StepWork::write_weight(const Elsewhere& e, const TensorElements& weight) const {
  parameters[e.row].param->detach().copy_(weight.values);
  if (e.lent.copy == nullptr) return;
  e.lent.copy->copy_(e.lent.rounded_to ? weight.values.to(*e.lent.rounded_to) : weight.values);
}

at::Tensor StepWork::readable_gradient(const char* optimizer, const Stepped& stepped,
                                       const at::Tensor& grad, bool like_double) {
  const at::Tensor& param = *stepped.param;
  const std::string name = "the gradient of " + name_of(stepped);
  bridge::check_kernel_tensor(optimizer, name, grad, bridge::Family::kSteps);
  if (grad.sizes() != param.sizes()) {
    raise<ConfigError>(optimizer, name, " has sizes ", grad.sizes());
  }
  const bool too_wide = grad.scalar_type() == at::kDouble && !like_double;
  at::Tensor copy = bridge::empty_laid_out_as(param, too_wide ? at::kFloat : grad.scalar_type());
  return copy.copy_(grad.detach());
}

void StepWork::add_copy(const char* optimizer, const Stepped& stepped, const LowCopy& lent,
                        kernels::StepRow& row) {
  const at::Tensor& copy = *lent.copy;
  row.copy_kind = copy_kind_of(lent);
  if (row.copy_kind == kernels::CopyKind::kNone || copy.device() != stepped.param->device() ||
      copy.sizes() != stepped.param->sizes() || !bridge::is_dense(copy) ||
      !bridge::same_layout(copy, *stepped.param)) {
    raise<ConfigError>(optimizer, "the low-precision copy (", bridge::describe(copy), ", strides ",
                       copy.strides(), ") does not fit ", name_of(stepped), ", strides ",
                       stepped.param->strides());
  }
  row.copy = copy.mutable_data_ptr();
}

void StepWork::add_split(const char* optimizer, const Stepped& stepped, const LowCopy& lent,
                         kernels::StepRow& row) {
  const at::Tensor& weight = *lent.copy;
  if (!bridge::can_split(weight) || weight.device() != stepped.param->device() ||
      !bridge::same_layout(weight, *stepped.param)) {
    raise<ConfigError>(optimizer, "the bfloat16 weight (", bridge::describe(weight), ", strides ",
                       weight.strides(), ") does not fit ", name_of(stepped), ", strides ",
                       stepped.param->strides());
  }
  row.param = weight.mutable_data_ptr();
  row.param_dtype = DType::kBFloat16;
  row.remainder = lent.rest->remainder.mutable_data_ptr();
  row.ties = static_cast<std::uint32_t*>(lent.rest->ties.mutable_data_ptr());
}

StepWork::Written StepWork::written_by(std::size_t i) const {
  const auto count =
      static_cast<std::size_t>(device.has(i) ? parameters[i].param->numel() : rows[i].count);
  return {rows[i].param, rows[i].copy, rows[i].remainder, count * size_of(rows[i].param_dtype),
          rows[i].copy_kind};
}

void StepWork::check_overlaps(const char* optimizer) {
  // Sorting thousands of addresses every step would cost more than a small step does.
  bool as_before = seen_.size() == rows.size();
  for (std::size_t i = 0; as_before && i < rows.size(); ++i) as_before = seen_[i] == written_by(i);
  if (as_before) return;
  extents_.clear();
  seen_.clear();
  seen_gradients_.clear();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const kernels::StepRow& row = rows[i];
    if (row.param == nullptr) continue;  // LibTorch's operators step it
    const auto count = static_cast<std::size_t>(parameters[i].param->numel());
    extents_.push_back({row.param, count * size_of(row.param_dtype), i, true});
    if (row.copy != nullptr) {
      const std::size_t copy_bytes = lent_[i].copy->element_size();
      extents_.push_back({row.copy, count * copy_bytes, i, true});
    }
    if (row.remainder != nullptr) {
      extents_.push_back({row.remainder, count * sizeof(std::uint16_t), i, true});
    }
  }
  if (const auto overlap = bridge::find_overlap(extents_)) {
    const auto first = std::min(overlap->first.index, overlap->second.index);
    const auto second = std::max(overlap->first.index, overlap->second.index);
    raise<ConfigError>(optimizer, name_of(parameters[first]), " and ", name_of(parameters[second]),
                       " share memory, or one is listed twice");
  }
  for (std::size_t i = 0; i < rows.size(); ++i) seen_.push_back(written_by(i));
}

// A gradient may be its own weight's memory, element for element, but no other that is written.
void StepWork::check_gradients_apart(const char* optimizer) {
  const std::less<const void*> before;
  const auto end_of = [](const void* begin, std::size_t bytes) -> const void* {
    return static_cast<const unsigned char*>(begin) + bytes;
  };
  seen_gradients_.resize(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const kernels::StepRow& row = rows[i];
    const Read read{row.grad, row.grad_dtype};
    if (row.grad == nullptr || read == seen_gradients_[i]) continue;
    const auto count = static_cast<std::size_t>(parameters[i].param->numel());
    const std::size_t bytes = count * size_of(row.grad_dtype);
    const bool in_place = row.grad == row.param && row.grad_dtype == row.param_dtype;
    seen_gradients_[i] = read;
    if (bytes == 0 || in_place) continue;
    // The written extents lie apart, so the last that begins before the gradient's end decides.
    const void* const end = end_of(row.grad, bytes);
    const auto after = std::partition_point(
        extents_.begin(), extents_.end(),
        [&](const bridge::Extent& extent) { return before(extent.begin, end); });
    if (after == extents_.begin()) continue;
    const bridge::Extent& written = *(after - 1);
    if (before(row.grad, end_of(written.begin, written.bytes))) {
      seen_gradients_.clear();
      raise<ConfigError>(optimizer, "the gradient of ", name_of(parameters[i]),
                         " shares memory with ", name_of(parameters[written.index]),
                         " or its low-precision copy");
    }
  }
}

bool StepWork::any_moved() const {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (device.has_moved(i, *parameters[i].param)) return true;
  }
  return false;
}

bool StepWork::gradients_finite() {
  gradients_.clear();
  for (const kernels::StepRow& row : rows) {
    gradients_.push_back({row.grad, row.grad_dtype, row.count});
  }
  if (!lists.all_finite(gradients_)) return false;
  if (!device.empty()) {
    at::Tensor found = at::zeros({}, at::kFloat);
    device.look(found, /*norms=*/false);
    if (found.item<float>() != 0) return false;
  }
  for (const Elsewhere& e : elsewhere) {
    if (!at::isfinite(e.grad).all().item<bool>()) return false;
  }
  return true;
}

double StepWork::gradient_norm(kernels::Norm norm, std::vector<double>* per_tensor) {
  gradients_.clear();
  for (const kernels::StepRow& row : rows) {
    gradients_.push_back({row.grad, row.grad_dtype, row.count});
  }
  std::vector<double> kept;
  std::vector<double>& each = per_tensor != nullptr ? *per_tensor : kept;
  if (per_tensor == nullptr && elsewhere.empty() && device.empty()) {
    return lists.norm(gradients_, norm);
  }
  each.resize(rows.size());
  double total = lists.norm(gradients_, norm, each);
  for (const Elsewhere& e : elsewhere) {
    const double order = norm == kernels::Norm::kTwo ? 2 : std::numeric_limits<double>::infinity();
    const double of_tensor =
        e.grad.numel() == 0
            ? 0
            : at::linalg_vector_norm(e.grad, order, {}, false, at::kDouble).item<double>();
    each[e.row] = of_tensor;
    total = norm == kernels::Norm::kTwo ? std::hypot(total, of_tensor)
                                        : kernels::largest(of_tensor, total);
  }
  if (per_tensor == nullptr && !device.empty()) {
    device.find_norm();
    total = std::hypot(total, device.norm().item<double>());
  }
  return total;
}

void* StepWork::state_memory(at::Tensor& state, const Stepped& of) {
  const at::Tensor& param = *of.param;
  const at::ScalarType type = param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (!state.defined()) {
    state = bridge::is_dense(param)
                ? bridge::empty_laid_out_as(param, type).zero_()
                : at::zeros(param.sizes(), param.options().dtype(type).requires_grad(false));
  } else if (state.sizes() != param.sizes()) {
    raise<ConfigError>("optimizer", "the state (", bridge::describe(state), ") of ", name_of(of),
                       " has other sizes: it belongs to another parameter or optimizer");
  } else if (!bridge::has_kernels(param.device(), bridge::Family::kSteps)) {
    state = state.to(param.device(), type);
  } else if (state.scalar_type() != type || state.device() != param.device() ||
             !bridge::is_dense(state) || !bridge::same_layout(state, param)) {
    state = bridge::empty_laid_out_as(param, type).copy_(state.detach());
  }
  return state.mutable_data_ptr();
}

void StepWork::bump_versions() {
  const auto each = [this](std::size_t i, const auto& visit) {
    visit(*parameters[i].param);
    if (lent_[i].copy != nullptr) visit(*lent_[i].copy);
  };
  bridge::in_blocks(
      parameters.size(), [&](std::size_t i) { each(i, bridge::prefetch); },
      [&](std::size_t i) { each(i, bridge::prefetch_version); },
      [&](std::size_t i) { each(i, bridge::bump_version); });
}

void StepWork::release() {
  parameters.clear();
  rows.clear();
  elsewhere.clear();
  device.clear();
  states.clear();
  fresh.clear();
  held_.clear();
  lent_.clear();
  gradients_.clear();
  guard = {};
}

}  // namespace mezzo::optim
