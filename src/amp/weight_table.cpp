#include "amp/weight_table.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include <utility>

#include "bridge/tensors.h"

namespace mezzo::detail {
namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

bool is_unchanged(const Weight& weight) {
  return weight.tensor._version() == weight.version &&
         storage_of(weight.tensor) == weight.storage && weight.tensor.scalar_type() == weight.kept;
}

/// The tensor's storage read as another type.
at::Tensor storage_as(const at::Tensor& tensor, at::ScalarType type) {
  return at::empty({0}, tensor.options().dtype(type).requires_grad(false))
      .set_(tensor.storage(), 0, tensor.sizes(), tensor.strides());
}

/// A master takes the values that were written. Low values that it rounds to already tell nothing
/// new, and it knows them better: so it does not matter whether the network's file or the masters'
/// is loaded first.
void take_values(at::Tensor& master, const at::Tensor& values) {
  if (values.scalar_type() == master.scalar_type()) {
    master.copy_(values);
    return;
  }
  const at::Tensor same = master.to(values.scalar_type()).eq(values);
  master.copy_(at::where(same, master, values.to(master.scalar_type())));
}

}  // namespace

Weight& WeightTable::add(Weight weight) {
  agree(weight);
  const c10::TensorImpl* key = weight.tensor.unsafeGetTensorImpl();
  return weights_.insert_or_assign(key, std::move(weight)).first->second;
}

Weight* WeightTable::find(const at::Tensor& tensor) {
  const auto found = weights_.find(tensor.unsafeGetTensorImpl());
  return found == weights_.end() ? nullptr : &found->second;
}

void WeightTable::agree(Weight& weight) {
  weight.version = weight.tensor._version();
  weight.storage = storage_of(weight.tensor);
  if (weight.master.defined()) weight.master_version = weight.master._version();
}

bool WeightTable::master_was_written(const Weight& weight) {
  if (!weight.master.defined()) return false;
  if (weight.master._version() != weight.master_version) return true;
  if (!is_unchanged(weight) || !weight.tensor.device().is_cpu() || weight.tensor.numel() == 0)
    return false;
  const float first = *weight.master.const_data_ptr<float>();
  return weight.kept == at::kHalf
             ? c10::Half(first).x != weight.tensor.const_data_ptr<c10::Half>()->x
             : weight.kept == at::kBFloat16 &&
                   c10::BFloat16(first).x != weight.tensor.const_data_ptr<c10::BFloat16>()->x;
}

void WeightTable::absorb() {
  const std::lock_guard lock(mutex_);
  for (auto& [key, weight] : weights_) {
    if (!is_unchanged(weight)) absorb_one(weight);
  }
}

bool WeightTable::shares_storage(const Weight& weight) const {
  for (const auto& [key, other] : weights_) {
    if (!other.tensor.is_same(weight.tensor) &&
        storage_of(other.tensor) == storage_of(weight.tensor)) {
      return true;
    }
  }
  return false;
}

void WeightTable::absorb_one(Weight& weight) {
  const at::NoGradGuard no_grad;
  at::Tensor& tensor = weight.tensor;
  at::Tensor values = tensor.detach();
  if (tensor.scalar_type() == weight.kept && tensor.has_storage() &&
      storage_of(tensor) != weight.storage && !shares_storage(weight)) {
    const std::size_t bytes = tensor.storage().nbytes();
    const auto count = static_cast<std::size_t>(tensor.numel());
    const bool fits = bytes == count * tensor.element_size();
    if (!fits && tensor.storage_offset() == 0 && bytes == count * sizeof(float)) {
      values = storage_as(tensor, at::kFloat);
    } else if (!fits && tensor.storage_offset() == 0 && bytes == count * sizeof(double)) {
      values = storage_as(tensor, at::kDouble);
    } else if (!fits) {
      raise("model", "the storage of '", weight.name, "' was replaced by ", bytes, " bytes for ",
            count, " elements of ", tensor.scalar_type(),
            ": its values cannot be understood; load with torch::load(model, file) on the handle "
            "that "
            "initialize returned, or with load_model_state_dict");
    }
  }
  if (weight.master.defined()) {
    if (weight.master.device() != tensor.device()) {
      weight.master.set_data(weight.master.to(tensor.device()));
    }
    if (!bridge::same_layout(weight.master, tensor) && bridge::is_dense(tensor)) {
      const at::Tensor laid = bridge::empty_laid_out_as(tensor, weight.master.scalar_type());
      laid.copy_(weight.master.detach());
      weight.master.set_data(laid);
    }
    take_values(weight.master, values);
  }
  if (values.scalar_type() != weight.kept || !values.is_alias_of(tensor)) {
    tensor.set_data(values.to(weight.kept));
  }
  agree(weight);
}

void WeightTable::publish(const std::vector<Weight*>& weights) {
  if (weights.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  std::vector<at::Tensor> masters;
  for (Weight* weight : weights) {
    tensors.push_back(weight->tensor);
    masters.push_back(weight->master);
  }
  at::_foreach_copy_(tensors, masters);
  for (Weight* weight : weights) agree(*weight);
}

void WeightTable::restore() {
  const at::NoGradGuard no_grad;
  for (auto& [key, weight] : weights_) {
    at::Tensor& tensor = weight.tensor;
    const at::Tensor values = weight.master.defined() ? weight.master.detach() : tensor.detach();
    // A gradient of another type than its tensor would be refused.
    at::Tensor grad = weight.master.defined() ? weight.master.grad() : tensor.grad();
    tensor.mutable_grad().reset();
    tensor.set_data(values.to(weight.original));
    if (grad.defined()) tensor.mutable_grad() = grad.to(weight.original);
  }
  weights_.clear();
}

std::vector<Weight*> WeightTable::all() {
  std::vector<Weight*> result;
  result.reserve(weights_.size());
  for (auto& [key, weight] : weights_) result.push_back(&weight);
  return result;
}

}  // namespace mezzo::detail
