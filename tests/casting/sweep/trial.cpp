#include "casting/sweep/trial.h"

#include <torch/torch.h>

#include <algorithm>
#include <memory>

namespace mezzo::casting::sweep {
namespace {

bool is_floating(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point();
}

// Applies `change` to each tensor of the arguments, in order.
Stack with_tensors(const Stack& stack,
                   const std::function<at::Tensor(const at::Tensor&, std::size_t)>& change) {
  Stack changed;
  for (std::size_t i = 0; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor()) {
      changed.push_back(change(value.toTensor(), i));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> all;
      for (const at::Tensor& tensor : value.toTensorVector()) all.push_back(change(tensor, i));
      changed.push_back(all);
    } else {
      changed.push_back(value);
    }
  }
  return changed;
}

struct Prepared {
  Stack stack;
  std::vector<at::Tensor> leaves;
};

bool is_written(const c10::FunctionSchema& schema, std::size_t argument) {
  const c10::AliasInfo* alias = schema.arguments()[argument].alias_info();
  return alias != nullptr && alias->isWrite();
}

Prepared prepared(const c10::FunctionSchema& schema, const Stack& stack, const Types& types,
                  bool with_gradients) {
  Prepared all;
  std::size_t index = 0;
  all.stack = with_tensors(stack, [&](const at::Tensor& tensor, std::size_t argument) {
    if (!tensor.defined()) return tensor;
    if (!is_floating(tensor)) return tensor.clone();
    at::Tensor typed = tensor.detach().to(types(index++)).clone();
    if (!with_gradients) return typed;
    typed.requires_grad_(true);
    all.leaves.push_back(typed);
    return is_written(schema, argument) ? typed.clone() : typed;
  });
  return all;
}

std::vector<at::Tensor> tensors_of(const Stack& stack) {
  std::vector<at::Tensor> all;
  for (const c10::IValue& value : stack) {
    if (value.isTensor() && value.toTensor().defined()) {
      all.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector())
        if (tensor.defined()) all.push_back(tensor);
    }
  }
  return all;
}

void backward(Outcome& outcome, const std::vector<at::Tensor>& leaves) {
  std::vector<at::Tensor> results;
  std::vector<at::Tensor> cotangents;
  for (const at::Tensor& result : outcome.results) {
    if (!result.requires_grad()) continue;
    results.push_back(result);
    at::manual_seed(3);
    const at::Tensor cotangent = at::rand(result.sizes(), at::kFloat);
    cotangents.push_back(cotangent.to(result.device(), result.scalar_type()));
  }
  if (results.empty()) return;
  outcome.gradients = torch::autograd::grad(results, leaves, cotangents, std::nullopt,
                                            /*create_graph=*/false, /*allow_unused=*/true);
}

std::string first_line(std::string text) {
  text = text.substr(0, text.find('\n'));
  return text.empty() ? "an error without words" : text.substr(0, 150);
}

bool close(const at::Tensor& ours, const at::Tensor& theirs) {
  if (ours.sizes() != theirs.sizes()) return false;
  if (ours.numel() == 0) return true;
  const at::Tensor a = ours.detach().to_dense().to(at::kDouble);
  const at::Tensor b = theirs.detach().to_dense().to(at::kDouble);
  const double largest = at::nan_to_num(b, 0, 0, 0).abs().max().item<double>();
  return at::allclose(a, b, /*rtol=*/1e-4, /*atol=*/1e-4 * largest + 1e-6, /*equal_nan=*/true);
}

// Values below this are far inside the range of float16, and so are a few sums of them.
constexpr double kFarInside = 100;
// Drawn sizes can make expanded tensors that no memory holds densely.
constexpr std::int64_t kMostValues = std::int64_t{1} << 20;

/// Nested tensors and those of vmap do not.
bool shows_values(const at::Tensor& tensor) {
  return !tensor.is_nested() && (tensor.layout() != at::kStrided || tensor.has_storage());
}

bool loses_values(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs) {
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    if (!is_floating(ours[i]) || !theirs[i].defined() || !shows_values(ours[i])) continue;
    if (ours[i].sizes() != theirs[i].sizes() || ours[i].numel() > kMostValues) continue;
    const at::Tensor values = ours[i].detach().to_dense().to(at::kDouble);
    const at::Tensor expected = theirs[i].detach().to_dense().to(at::kDouble);
    const bool small = (expected.abs() < kFarInside).all().item<bool>();
    if (small && !values.isfinite().all().item<bool>()) return true;
  }
  return false;
}

}  // namespace

std::size_t count_floats(const Stack& stack) {
  std::size_t count = 0;
  with_tensors(stack, [&](const at::Tensor& tensor, std::size_t) {
    count += is_floating(tensor);
    return tensor;
  });
  return count;
}

Stack on_device(const Stack& stack, at::Device device) {
  return with_tensors(stack, [&](const at::Tensor& tensor, std::size_t) {
    return tensor.defined() ? tensor.to(device) : tensor;
  });
}

Stack rounded_to(const Stack& stack, const Types& types) {
  std::size_t index = 0;
  return with_tensors(stack, [&](const at::Tensor& tensor, std::size_t) {
    return is_floating(tensor) ? tensor.to(types(index++)).to(at::kFloat) : tensor;
  });
}

Outcome call(const c10::OperatorHandle& op, const Stack& stack, const Types& types,
             bool with_gradients, const std::optional<Policy>& policy, Mode mode) {
  Outcome outcome;
  try {
    Prepared arguments = prepared(op.schema(), stack, types, with_gradients);
    at::manual_seed(7);
    {
      std::optional<Scope> scope;
      if (policy) scope.emplace(*policy, mode);
      op.callBoxed(&arguments.stack);
    }
    outcome.results = tensors_of(arguments.stack);
    if (with_gradients) backward(outcome, arguments.leaves);
  } catch (const c10::Error& error) {
    outcome.error = first_line(error.what_without_backtrace());
  } catch (const std::exception& error) {
    outcome.error = first_line(error.what());
  }
  return outcome;
}

std::string difference(const Outcome& outcome, const Outcome& reference) {
  const std::size_t results = std::min(outcome.results.size(), reference.results.size());
  bool all_float = true;
  for (std::size_t i = 0; i < results; ++i) {
    const at::Tensor& result = outcome.results[i];
    if (!result.is_floating_point()) continue;
    if (result.scalar_type() != at::kFloat) {
      all_float = false;
    } else if (!close(result, reference.results[i])) {
      return "result " + std::to_string(i);
    }
  }
  const std::size_t gradients = std::min(outcome.gradients.size(), reference.gradients.size());
  for (std::size_t i = 0; all_float && i < gradients; ++i) {
    const at::Tensor& gradient = outcome.gradients[i];
    if (!gradient.defined() || gradient.scalar_type() != at::kFloat) continue;
    if (reference.gradients[i].defined() && !close(gradient, reference.gradients[i]))
      return "gradient " + std::to_string(i);
  }
  return {};
}

std::string lost(const Outcome& outcome, const Outcome& reference) {
  if (loses_values(outcome.results, reference.results)) return "a result";
  if (loses_values(outcome.gradients, reference.gradients)) return "a gradient";
  return {};
}

}  // namespace mezzo::casting::sweep
