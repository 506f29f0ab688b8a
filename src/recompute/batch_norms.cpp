#include "recompute/batch_norms.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <memory>
#include <ranges>
#include <string_view>

namespace mezzo::recomputation {
namespace {

thread_local KeptStatistics* watching = nullptr;

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& call) {
  if (watching != nullptr) watching->see(call);
  return nullptr;
}

// Through a variable of its own: the version of the statistics, which graphs may check, stays.
void copy_values(const at::Tensor& to, const at::Tensor& from) {
  const at::NoGradGuard no_grad;
  at::Tensor target = to.variable_data();
  target.copy_(from);
}

at::Tensor values_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.variable_data().clone();
}

}  // namespace

KeptStatistics::KeptStatistics()
    : outer_(std::exchange(watching, this)),
      // The watch of the outermost one serves those inside it.
      handle_(outer_ != nullptr
                  ? at::CallbackHandle{}
                  : at::addThreadLocalCallback(at::RecordFunctionCallback(&operator_begins)
                                                   .needsInputs(true)
                                                   .scopes({at::RecordScope::FUNCTION}))) {}

KeptStatistics::~KeptStatistics() {
  watching = outer_;
  if (outer_ == nullptr) at::removeCallback(handle_);
  for (const auto& [tensor, value] : std::views::reverse(kept_)) copy_values(tensor, value);
}

void KeptStatistics::keep(const at::Tensor& tensor, const at::Tensor& value) {
  const auto known =
      std::ranges::any_of(kept_, [&](const auto& each) { return each.first.is_same(tensor); });
  if (!known) kept_.emplace_back(tensor, value);
}

void KeptStatistics::see_batch_norm(c10::ArrayRef<const c10::IValue> inputs) {
  // batch_norm(input, weight, bias, running_mean, running_var, training, ...)
  if (inputs.size() < 6 || !inputs[5].isBool() || !inputs[5].toBool()) return;
  for (const std::size_t i : {3, 4}) {
    if (inputs[i].isTensor() && inputs[i].toTensor().defined())
      keep(inputs[i].toTensor(), values_of(inputs[i].toTensor()));
  }
  // torch::nn::BatchNorm counts immediately before it calls the operator.
  if (counted_.first.defined()) keep(counted_.first, counted_.second);
  counted_ = {};
}

void KeptStatistics::see(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  if (name == "aten::batch_norm") {
    const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
    see_batch_norm(call.inputs());
  } else if (name == "aten::add_") {
    const c10::ArrayRef<const c10::IValue> inputs = call.inputs();
    if (inputs.empty() || !inputs[0].isTensor()) return;
    const at::Tensor& counter = inputs[0].toTensor();
    if (counter.dim() != 0 || counter.scalar_type() != at::kLong) return;
    const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
    counted_ = {counter, values_of(counter)};
  }
}

}  // namespace mezzo::recomputation
