#include "casting/weight_entry.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace mezzo::casting {
namespace {

// Was it ever set, though what it named may be gone?
template <typename T>
bool was_set(const std::weak_ptr<T>& pointer) {
  const std::weak_ptr<T> empty;
  return pointer.owner_before(empty) || empty.owner_before(pointer);
}

bool holds_weight(const std::shared_ptr<Shadow>& shadow) {
  return shadow->holds_weight();
}
bool led_to_weight(const std::shared_ptr<Shadow>& shadow) {
  return shadow->led_to_weight();
}
bool saw_gradient(const std::shared_ptr<Shadow>& shadow) {
  return shadow->saw_gradient();
}

// Did autograd ever lead a graph to the weight?
bool was_recorded(const at::Tensor& weight) {
  const auto* const meta = torch::autograd::impl::get_autograd_meta(weight);
  if (meta == nullptr) return false;
  if constexpr (requires { was_set(meta->grad_accumulator_); }) {
    return was_set(meta->grad_accumulator_);
  } else {
    return torch::autograd::impl::try_get_grad_accumulator(weight) != nullptr;
  }
}

}  // namespace

WeightMemory::WeightMemory(const at::Tensor& weight)
    : storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
          weight.storage().unsafeGetStorageImpl())),
      dtype(weight.scalar_type()),
      offset(weight.storage_offset()),
      sizes(weight.sizes()),
      strides(weight.strides()) {}

bool WeightMemory::is_of(const at::Tensor& weight) const {
  return storage._unsafe_get_target() == weight.storage().unsafeGetStorageImpl() &&
         dtype == weight.scalar_type() && offset == weight.storage_offset() &&
         weight.sizes().equals(sizes) && weight.strides().equals(strides);
}

WeightEntry::WeightEntry(const at::Tensor& tensor, std::uint64_t unique_number)
    : weight(tensor.getIntrusivePtr()), number(unique_number), memory(tensor) {}

std::vector<std::shared_ptr<Shadow>> WeightEntry::take_shadows() {
  trained_ = trained_ || std::ranges::any_of(shadows, saw_gradient);
  return std::exchange(shadows, {});
}

void WeightEntry::retire() {
  for (const auto& shadow : take_shadows()) shadow->retire();
}

void WeightEntry::follow_memory(const at::Tensor& tensor) {
  if (memory.is_of(tensor)) return;
  retire();
  memory = WeightMemory(tensor);
}

const std::shared_ptr<Shadow>& WeightEntry::shadow_of(ShadowKind kind) {
  for (const auto& shadow : shadows) {
    if (shadow->kind() == kind) return shadow;
  }
  return shadows.emplace_back(std::make_shared<Shadow>(kind));
}

bool WeightEntry::is_gone() const {
  const std::size_t owners = weight.use_count();
  return owners == 0 || (owners == 1 && std::ranges::any_of(shadows, holds_weight));
}

void WeightEntry::updates_are_reported(const QueuePlace& here) {
  // Once so, always so: a graph may be replayed at any time.
  moved_by_graph = moved_by_graph || here.capture != 0;
  kept_fresh = !moved_by_graph;
  if (moved_by_graph) invalidate();
}

void WeightEntry::invalidate() {
  for (const auto& shadow : shadows) shadow->invalidate();
}

bool WeightEntry::is_trained(const at::Tensor& tensor) {
  // The first use may have led a graph to the weight itself, by a view of it.
  const bool others_graph =
      !shadows.empty() && std::ranges::none_of(shadows, led_to_weight) && was_recorded(tensor);
  trained_ = trained_ || moved_by_graph || others_graph || tensor.grad().defined() ||
             std::ranges::any_of(shadows, saw_gradient);
  return trained_;
}

}  // namespace mezzo::casting
