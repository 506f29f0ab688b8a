#include "amp/weight_table.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <utility>

#include "bridge/tensors.h"

namespace mezzo::amp::detail {
namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

bool is_unchanged(const Weight& weight) {
  return weight.tensor._version() == weight.version &&
         storage_of(weight.tensor) == weight.storage && weight.tensor.scalar_type() == weight.kept;
}

template <typename Bits>
Samples first_middle_last(const at::Tensor& tensor) {
  const auto* values = static_cast<const Bits*>(tensor.const_data_ptr());
  if (values == nullptr) return {};
  const auto n = static_cast<std::size_t>(tensor.numel());
  return {values[0], values[n / 2], values[n - 1]};
}

constexpr const char* kNoMemory =
    "mezzo: this float master has no memory (Options::split_masters): its values are in its weight "
    "and in 16 bits beside it. master_params(optimizer) and model_state_dict(model) give values; "
    "what they gave has memory until the next step";

/// The tensor's storage read as another type.
at::Tensor storage_as(const at::Tensor& tensor, at::ScalarType type) {
  return at::empty({0}, tensor.options().dtype(type).requires_grad(false))
      .set_(tensor.storage(), 0, tensor.sizes(), tensor.strides());
}

/// A master takes the values that were written. Low values that it rounds to already say nothing
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

/// A split master takes the values of a tensor that was written, and has memory again. A tensor
/// that only went to another device is as it was: what stands beside it follows.
void take_into_split(Weight& weight, const at::Tensor& values) {
  const at::Tensor& tensor = weight.tensor;
  at::Tensor& remainder = weight.rest.remainder;
  const bool moved = values.device() != remainder.device() &&
                     values.scalar_type() == at::kBFloat16 &&
                     bridge::same_layout(values, remainder);
  at::Tensor master;
  if (moved) {
    master = bridge::join_master(values.to(remainder.device()), weight.rest).to(values.device());
  } else {
    master = bridge::is_dense(tensor)
                 ? bridge::empty_laid_out_as(tensor, at::kFloat)
                 : at::empty(tensor.sizes(), tensor.options().dtype(at::kFloat));
    master.copy_(values);
  }
  weight.rest = {};
  weight.master.set_data(master);
}

}  // namespace

Samples samples_of(const at::Tensor& tensor) {
  const bool readable = tensor.device().is_cpu() && tensor.numel() > 0 && tensor.has_storage() &&
                        bridge::has_memory(tensor) && bridge::is_dense(tensor);
  if (!readable) return {};
  if (tensor.element_size() == sizeof(std::uint16_t))
    return first_middle_last<std::uint16_t>(tensor);
  return tensor.scalar_type() == at::kFloat ? first_middle_last<std::uint32_t>(tensor) : Samples();
}

at::Tensor master_value(const Weight& weight) {
  return weight.is_split() ? bridge::join_master(weight.tensor, weight.rest)
                           : weight.master.detach();
}

void give_memory(Weight& weight) {
  if (!weight.is_split()) return;
  weight.master.set_data(master_value(weight));
  weight.rest = {};
  weight.master_version = weight.master._version();
  weight.master_samples = samples_of(weight.master);
}

void split_master(Weight& weight) {
  if (!weight.master.defined() || weight.is_split() || !bridge::can_split(weight.tensor)) return;
  if (weight.master.device() != weight.tensor.device() ||
      !bridge::same_layout(weight.master, weight.tensor)) {
    return;
  }
  if (WeightTable::master_was_written(weight) || WeightTable::tensor_was_written(weight)) return;
  weight.rest = bridge::split_master(weight.master, weight.tensor);
  weight.master.set_data(bridge::without_memory(weight.master, kNoMemory));
  WeightTable::agree(weight);
}

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
  weight.samples = samples_of(weight.tensor);
  if (!weight.master.defined()) return;
  weight.master_version = weight.master._version();
  weight.master_samples = samples_of(weight.master);
}

bool WeightTable::master_was_written(const Weight& weight) {
  if (!weight.master.defined()) return false;
  return weight.master._version() != weight.master_version ||
         samples_of(weight.master) != weight.master_samples;
}

bool WeightTable::tensor_was_written(const Weight& weight) {
  return !is_unchanged(weight) || samples_of(weight.tensor) != weight.samples;
}

bool WeightTable::is_torn(const Weight& weight) {
  return master_was_written(weight) && is_unchanged(weight) &&
         samples_of(weight.tensor) != weight.samples;
}

bool WeightTable::absorb() {
  const std::lock_guard lock(mutex_);
  bool through_data = false;
  for (auto& [key, weight] : weights_) {
    if (is_unchanged(weight)) {
      if (!weight.master.defined() || samples_of(weight.tensor) == weight.samples) continue;
      // Where the master was written as well, it is the newer one.
      if (master_was_written(weight)) continue;
      through_data = true;
    }
    absorb_one(weight);
  }
  // Others may have been written at places that were not compared.
  if (through_data) absorb_differences(all());
  return through_data;
}

void WeightTable::absorb_values(const std::vector<at::Tensor>& tensors) {
  absorb();
  const std::lock_guard lock(mutex_);
  std::vector<Weight*> weights;
  for (const at::Tensor& tensor : tensors) {
    if (Weight* weight = find(tensor)) weights.push_back(weight);
  }
  absorb_differences(weights);
}

void WeightTable::absorb_all_values() {
  absorb();
  const std::lock_guard lock(mutex_);
  absorb_differences(all());
}

/// Reads a device once.
void WeightTable::absorb_differences(const std::vector<Weight*>& weights) {
  const at::NoGradGuard no_grad;
  std::vector<Weight*> compared;
  std::vector<at::Tensor> differ;
  for (Weight* weight : weights) {
    if (!weight->master.defined() || weight->is_split() || master_was_written(*weight) ||
        weight->tensor.numel() == 0) {
      continue;
    }
    const at::Tensor differs = weight->master.to(weight->kept).ne(weight->tensor).any();
    compared.push_back(weight);
    differ.push_back(differ.empty() ? differs : differs.to(differ.front().device()));
  }
  if (differ.empty()) return;
  const at::Tensor all = at::stack(differ).to(at::kCPU);
  const bool* flags = all.const_data_ptr<bool>();
  for (std::size_t i = 0; i < compared.size(); ++i) {
    if (flags[i]) absorb_one(*compared[i]);
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
  const bool was_split = weight.is_split();
  if (was_split) {
    take_into_split(weight, values);
  } else if (weight.master.defined()) {
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
  if (was_split) split_master(weight);
}

void WeightTable::publish(const std::vector<Weight*>& weights) {
  if (weights.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  std::vector<at::Tensor> masters;
  for (Weight* weight : weights) {
    if (weight->is_split()) continue;  // its tensor is the newer one, if anything is
    tensors.push_back(weight->tensor);
    masters.push_back(weight->master);
  }
  if (tensors.empty()) return;
  at::_foreach_copy_(tensors, masters);
  for (Weight* weight : weights) {
    if (!weight->is_split()) agree(*weight);
  }
}

void WeightTable::restore() {
  const at::NoGradGuard no_grad;
  for (auto& [key, weight] : weights_) {
    at::Tensor& tensor = weight.tensor;
    const at::Tensor values = weight.master.defined() ? master_value(weight) : tensor.detach();
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

}  // namespace mezzo::amp::detail
