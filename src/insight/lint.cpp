#include "mezzo/insight_lint.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "amp/model_state.h"
#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "insight/call_list.h"
#include "insight/lint_tensors.h"
#include "insight/surroundings.h"
#include "insight/unobserved.h"
#include "optim/kinds.h"

namespace mezzo::insight {

namespace {

using mezzo::amp::detail::ModelState;

template <typename... Parts>
std::string words(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// The epsilon of a norm of LibTorch.
std::optional<double> epsilon_of(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  std::optional<double> eps;
  const auto look = [&]<typename... Norms>() {
    const auto one = [&](const auto* norm) {
      if (norm != nullptr) eps = norm->options.eps();
    };
    (one(dynamic_cast<const Norms*>(&module)), ...);
  };
  look.template operator()<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl,
                           nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl,
                           nn::LayerNormImpl, nn::GroupNormImpl>();
  return eps;
}

void check_weights(const torch::nn::Module& root, std::vector<Finding>& into) {
  for (const auto& item : root.named_parameters()) check_range(item.key(), item.value(), into);
}

/// The tensors that the optimizer steps: parameters, or the weights in front of masters.
std::unordered_set<const c10::TensorImpl*> owned_by(const detail::LintSubject& subject) {
  std::unordered_set<const c10::TensorImpl*> owned;
  for (const auto& group : subject.optimizer->param_groups()) {
    for (const at::Tensor& tensor : group.params()) owned.insert(tensor.unsafeGetTensorImpl());
  }
  if (subject.state == nullptr) return owned;
  for (const auto& optimizer : subject.state->session().optimizers()) {
    for (const auto& slot : optimizer->slots().all())
      owned.insert(slot.weight.unsafeGetTensorImpl());
  }
  return owned;
}

void check_owners(const detail::LintSubject& subject, std::vector<Finding>& into) {
  const auto owned = owned_by(subject);
  for (const auto& item : subject.module->named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    if (owned.contains(tensor.unsafeGetTensorImpl())) continue;
    into.push_back({"warning", "unowned", item.key(),
                    "it is trainable, and the optimizer does not hold it: it never moves, and has "
                    "no master at O2 and O5",
                    "give it to the optimizer, or freeze it with requires_grad_(false)"});
  }
}

void check_optimizer(torch::optim::Optimizer& optimizer, std::vector<Finding>& into) {
  const optim::OptimizerKind* kind = optim::kind_of(optimizer);
  if (kind == nullptr) return;
  for (const auto& group : optimizer.param_groups()) {
    if (!group.has_options()) continue;
    const double eps = kind->eps(group.options());
    if (eps <= 0 || eps > kZeroInHalf) continue;
    into.push_back({"warning", "optimizer_eps", std::string(kind->name),
                    words("at O3 its state is float16, in which eps = ", eps, " is zero"),
                    "raise eps to 1e-7 or more, or train at O2, which has float masters"});
    return;
  }
}

void check_modules(const torch::nn::Module& root, std::vector<Finding>& into) {
  for (const auto& [name, module] : mezzo::amp::detail::modules_of(root)) {
    const std::string where = name.empty() ? "the network" : name;
    const std::optional<double> eps = epsilon_of(*module);
    if (eps && *eps < kZeroInHalf) {
      into.push_back({"warning", "epsilon", where,
                      words("eps = ", *eps,
                            " is zero in float16 (O3 without "
                            "keep_batchnorm_fp32), and a constant row divides by it"),
                      "raise eps to 1e-5"});
    }
    if (root.is_training() && mezzo::amp::detail::is_batch_norm(*module) &&
        !module->is_training()) {
      into.push_back({"info", "batch_norm_eval", where,
                      "it is in evaluation mode while the network trains: its statistics stand "
                      "still at every level",
                      "call train() on it, unless it is frozen on purpose"});
    }
  }
}

/// Float buffers outside of batch norms.
void check_buffers(const torch::nn::Module& root, std::vector<Finding>& into) {
  const std::vector<at::Tensor> of_norms = mezzo::amp::detail::batch_norm_statistics(root);
  for (const auto& item : root.named_buffers()) {
    const at::Tensor& buffer = item.value();
    if (!buffer.defined() || buffer.scalar_type() != at::kFloat) continue;
    if (std::ranges::any_of(of_norms, [&](const at::Tensor& each) { return each.is_same(buffer); }))
      continue;
    note_buffer(item.key(), into);
  }
}

void check_sizes(const torch::nn::Module& root, std::vector<Finding>& into) {
  for (const auto& item : root.named_parameters()) check_matrix(item.key(), item.value(), into);
}

void check_calls(const detail::LintSubject& subject, std::vector<Finding>& into) {
  if (subject.calls.empty()) return;
  const Surroundings surroundings(subject.module->buffers());
  // Calls that leave no trace in the session.
  struct Traceless {
    explicit Traceless(ModelState* model) : state(model) {
      if (state == nullptr) return;
      trial = {state->operator_policy(), state->low_policy(), state->inputs()};
      state->set_trial(&trial);
    }
    ~Traceless() {
      if (state != nullptr) state->set_trial(nullptr);
    }
    Traceless(const Traceless&) = delete;
    Traceless& operator=(const Traceless&) = delete;
    ModelState* state;
    ModelState::Trial trial;
  };
  const Traceless traceless(subject.state.get());
  const at::AutoGradMode records(true);
  const CallList calls = calls_of([&] {
    for (const auto& call : subject.calls) call();
  });
  for (const auto& [name, number] : calls.large_numbers) {
    into.push_back({"warning", "mask", name,
                    words("it is given ", number,
                          ", beyond float16 (O1, O2, O3): it becomes an "
                          "infinity, or the operator runs in float"),
                    "mask with -infinity in float, or with -6e4"});
  }
  report_epsilons(calls.epsilons, into);
  for (const std::string& name : calls.custom_functions) {
    into.push_back({"info", "custom_function", name,
                    "no policy (O1, O4) knows which type this autograd function wants",
                    "call it through amp::custom_function<F>(type, ...)"});
  }
}

}  // namespace

void detail::raise_typed_examples() {
  raise<ConfigError>("lint",
                     "the network's forward takes types that no value of TorchScript becomes; give "
                     "its arguments in a std::tuple");
}

std::vector<Finding> detail::lint(const LintSubject& subject) {
  if (subject.module == nullptr) raise<ConfigError>("lint", "the network is empty");
  std::vector<Finding> found;
  check_calls(subject, found);
  {
    const Unobserved unobserved;
    check_weights(*subject.module, found);
  }
  check_owners(subject, found);
  check_optimizer(*subject.optimizer, found);
  check_modules(*subject.module, found);
  check_buffers(*subject.module, found);
  check_sizes(*subject.module, found);
  sort_by_severity(found);
  return found;
}

}  // namespace mezzo::insight
