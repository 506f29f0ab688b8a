#include "amp/param_state.h"

#include <c10/util/Type.h>

#include <typeinfo>

#include "core/raise.h"
#include "optim/kinds.h"

namespace mezzo::amp::detail {

bool visit_tensors(torch::optim::OptimizerParamState& state,
                   const std::function<void(at::Tensor&)>& visit) {
  const optim::StateKind* const kind = optim::kind_of(state);
  if (kind != nullptr) kind->visit(state, visit);
  return kind != nullptr;
}

std::unique_ptr<torch::optim::OptimizerParamState> deep_copy(
    const torch::optim::OptimizerParamState& state, std::string_view where) {
  const optim::StateKind* const kind = optim::kind_of(state);
  // A class derived from a known one may keep tensors that nobody here knows.
  if (kind == nullptr || *kind->type != typeid(state)) {
    raise<UnsupportedError>(where, "the optimizer keeps states of the class ",
                            c10::demangle(typeid(state).name()),
                            ", which cannot be copied: a closure that overflows at every scale "
                            "could not be undone; expected an optimizer of torch::optim or "
                            "mezzo::optim, or a step without closure");
  }
  auto copy = state.clone();
  kind->visit(*copy, [](at::Tensor& tensor) { tensor = tensor.detach().clone(); });
  return copy;
}

bool evaluates_repeatedly(const torch::optim::Optimizer& optimizer) {
  const optim::OptimizerKind* const kind = optim::kind_of(optimizer);
  return kind == nullptr || kind->evaluates_again;
}

double eps_of(const torch::optim::OptimizerParamGroup& group) {
  if (!group.has_options()) return 0;
  double eps = 0;
  for (const optim::OptimizerKind& kind : optim::optimizer_kinds())
    eps += kind.eps(group.options());
  return eps;
}

}  // namespace mezzo::amp::detail
