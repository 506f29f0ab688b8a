#include "optim/library_steps.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <utility>

#include "bridge/tensors.h"

namespace mezzo::optim {
namespace {

/// A list while it is put together, and where its weights are written as well.
struct Gathered {
  LibraryList list;
  std::vector<const LowCopy*> lent;

  bool takes(const StepWork& work, const Elsewhere& e) const {
    const at::Tensor& param = *work.parameters[e.row].param;
    const at::Tensor& first = list.params.front();
    return work.rows[e.row].scalars == work.rows[list.row].scalars &&
           param.device() == first.device() && param.scalar_type() == first.scalar_type();
  }
};

bool is_laid_out_as(const at::Tensor& tensor, const at::Tensor& param) {
  return tensor.defined() && tensor.scalar_type() == param.scalar_type() &&
         tensor.sizes() == param.sizes() && tensor.strides() == param.strides();
}

bool fits(const at::Tensor& param, const std::vector<at::Tensor>& states) {
  const bool wide = param.scalar_type() == at::kFloat || param.scalar_type() == at::kDouble;
  return param.is_cuda() && wide && bridge::is_dense(param) &&
         std::all_of(states.begin(), states.end(),
                     [&](const at::Tensor& state) { return is_laid_out_as(state, param); });
}

at::Tensor readable(const at::Tensor& grad, const at::Tensor& param) {
  if (is_laid_out_as(grad, param)) return grad.detach();
  return bridge::empty_laid_out_as(param, param.scalar_type()).copy_(grad.detach());
}

void write_copies(const Gathered& gathered) {
  std::vector<at::Tensor> copies;
  std::vector<at::Tensor> weights;
  for (std::size_t i = 0; i < gathered.lent.size(); ++i) {
    const LowCopy& lent = *gathered.lent[i];
    if (lent.copy == nullptr) continue;
    const at::Tensor& weight = gathered.list.params[i];
    copies.push_back(*lent.copy);
    weights.push_back(lent.rounded_to ? weight.to(*lent.rounded_to) : weight);
  }
  if (!copies.empty()) at::_foreach_copy_(copies, weights);
}

}  // namespace

std::vector<at::Tensor> LibraryList::steps(std::int64_t step) const {
  const at::TensorOptions options = params.front().options().dtype(at::kFloat);
  return {params.size(), at::full({}, static_cast<double>(step), options)};
}

std::vector<Elsewhere> step_by_library(
    const StepWork& work, c10::function_ref<bool(std::size_t row)> takes,
    c10::function_ref<std::vector<at::Tensor>(std::size_t row)> states,
    c10::function_ref<void(const LibraryList&)> step) {
  std::vector<Elsewhere> left;
  std::vector<Gathered> lists;
  for (const Elsewhere& e : work.elsewhere) {
    const at::Tensor param = work.parameters[e.row].param->detach();
    const bool is_known = takes(e.row);
    const std::vector<at::Tensor> own = is_known ? states(e.row) : std::vector<at::Tensor>{};
    if (!is_known || !fits(param, own)) {
      left.push_back(e);
      continue;
    }
    auto into = std::find_if(lists.begin(), lists.end(),
                             [&](const Gathered& other) { return other.takes(work, e); });
    if (into == lists.end()) {
      into = lists.insert(lists.end(), Gathered{});
      into->list.row = e.row;
      into->list.states.resize(own.size());
    }
    into->list.params.push_back(param);
    into->list.grads.push_back(readable(e.grad, param));
    for (std::size_t i = 0; i < own.size(); ++i) into->list.states[i].push_back(own[i]);
    into->lent.push_back(&e.lent);
  }
  for (Gathered& gathered : lists) {
    const double factor = work.gradient_factor(gathered.list.row);
    if (factor != 1) gathered.list.grads = at::_foreach_mul(gathered.list.grads, factor);
    step(gathered.list);
    write_copies(gathered);
  }
  return left;
}

}  // namespace mezzo::optim
