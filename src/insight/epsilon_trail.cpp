#include "insight/epsilon_trail.h"

#include <ATen/record_function.h>

#include <cmath>
#include <optional>
#include <utility>

#include "insight/module_paths.h"
#include "insight/unobserved.h"

namespace mezzo::insight {

namespace {

/// The number that an argument is: a scalar, or a tensor of one element.
std::optional<double> number_of(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  if (value.isInt()) return static_cast<double>(value.toInt());
  if (!value.isTensor() || !value.toTensor().defined()) return std::nullopt;
  const at::Tensor& tensor = value.toTensor();
  if (tensor.numel() != 1 || !tensor.is_floating_point() || !tensor.device().is_cpu())
    return std::nullopt;
  const Unobserved unobserved;
  return tensor.detach().item<double>();
}

/// Numbers of float64 stay what they are at every level.
bool is_wide(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() &&
         value.toTensor().scalar_type() == at::kDouble && value.toTensor().dim() > 0;
}

/// The small number that an operator is given beside a tensor.
std::optional<double> epsilon_among(std::string_view name, at::ArrayRef<const c10::IValue> inputs) {
  bool has_tensor = false;
  std::optional<double> eps;
  for (const c10::IValue& value : inputs.slice(0, numbers_in(name, inputs.size()))) {
    if (is_wide(value)) return std::nullopt;
    const std::optional<double> number = number_of(value);
    if (number && is_epsilon(std::fabs(*number))) {
      eps = std::fabs(*number);
    } else {
      has_tensor = has_tensor || value.isTensor();
    }
  }
  return has_tensor ? eps : std::nullopt;
}

template <typename Visit>
void each_tensor_of(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  }
}

c10::weak_intrusive_ptr<c10::StorageImpl> weakly(const at::Tensor& tensor) {
  return c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl());
}

}  // namespace

const EpsilonTrail::Bound* EpsilonTrail::bound_of(const c10::IValue& value) const {
  const Bound* bound = nullptr;
  each_tensor_of(value, [&](const at::Tensor& tensor) {
    const auto found = bounds_.find(memory_of(tensor));
    if (found != bounds_.end()) bound = &found->second;
  });
  return bound;
}

std::optional<double> EpsilonTrail::known_number(const c10::IValue& value) const {
  if (const auto number = number_of(value)) return number;
  if (!value.isTensor()) return std::nullopt;
  const auto found = filled_.find(memory_of(value.toTensor()));
  return found == filled_.end() ? std::nullopt : std::optional(found->second.number);
}

void EpsilonTrail::begins(std::string_view name, at::ArrayRef<const c10::IValue> inputs) {
  giver_.clear();
  filling_.reset();
  if (const auto filling = filling_of(name)) {
    filling_ = filling->number;
    if (filling->place)
      filling_ =
          *filling->place < inputs.size() ? number_of(inputs[*filling->place]) : std::nullopt;
  }
  gives_view_ = !name.ends_with('_');
  switch (epsilon_part(name)) {
    case EpsilonPart::kGives:
      if (const auto eps = epsilon_among(name, inputs)) {
        giver_ = name.starts_with("aten::") ? name.substr(6) : name;
        eps_ = *eps;
      }
      return;
    case EpsilonPart::kKeeps:
      for (const c10::IValue& value : inputs) {
        const Bound* const bound = bound_of(value);
        if (bound == nullptr) continue;
        giver_ = bound->giver;
        eps_ = bound->eps;
      }
      return;
    case EpsilonPart::kSpends: {
      const std::size_t place = spent_argument(name);
      if (place >= inputs.size()) return;
      const Bound* const bound = bound_of(inputs[place]);
      if (bound == nullptr) return;
      const std::size_t other = deciding_argument(name);
      const auto deciding = other < inputs.size() ? known_number(inputs[other]) : std::nullopt;
      if (fails_at(name, bound->eps, deciding)) {
        uses_.insert({bound->giver, bound->eps,
                      std::string(name.starts_with("aten::") ? name.substr(6) : name)});
      }
      return;
    }
    case EpsilonPart::kNone:
      return;
  }
}

void EpsilonTrail::ended(const std::vector<c10::IValue>& results) {
  for (const c10::IValue& result : results) {
    each_tensor_of(result, [&](const at::Tensor& tensor) {
      const c10::StorageImpl* const memory = memory_of(tensor);
      if (memory == nullptr || tensor.is_sparse()) return;
      if (!gives_view_) {  // written in place
        bounds_.erase(memory);
        filled_.erase(memory);
      }
      if (!giver_.empty()) bounds_.insert_or_assign(memory, Bound{weakly(tensor), giver_, eps_});
      const bool is_whole = tensor.nbytes() == tensor.storage().nbytes();
      if (filling_ && is_whole) filled_.insert_or_assign(memory, Filled{weakly(tensor), *filling_});
    });
  }
}

}  // namespace mezzo::insight
