#include "mezzo/optim.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "core/torch.h"
#include "optim/kinds.h"
#include "optim/step_access.h"
#include "optim/step_work.h"

namespace mezzo::optim {
namespace {

float read_flag(const char* optimizer, const char* what, const at::Tensor& flag, float otherwise) {
  if (!flag.defined()) return otherwise;
  if (flag.numel() != 1) {
    raise<ConfigError>(optimizer, what, " has ", flag.numel(), " elements; expected one");
  }
  return flag.item<float>();
}

// Lets go of what the step borrowed, whatever happens.
class Borrowed {
 public:
  explicit Borrowed(StepWork& work) : work_(work) {}
  ~Borrowed() { work_.release(); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

 private:
  StepWork& work_;
};

// LibTorch 2.15 merges a group's options with the optimizer's defaults, and of kinds that are not
// its own it keeps the defaults alone.
void keep_options(torch::optim::OptimizerParamGroup& group,
                  const torch::optim::OptimizerParamGroup& given) {
  if (given.has_options()) group.set_options(given.options().clone());
}

}  // namespace

FusedOptimizer::FusedOptimizer(const ParamGroups& groups, std::unique_ptr<Options> defaults)
    : torch::optim::Optimizer(groups, std::move(defaults)), work_(std::make_unique<StepWork>()) {
  for (std::size_t i = 0; i < groups.size(); ++i) keep_options(param_groups()[i], groups[i]);
}

FusedOptimizer::~FusedOptimizer() = default;
FusedOptimizer::FusedOptimizer(FusedOptimizer&&) noexcept = default;
FusedOptimizer& FusedOptimizer::operator=(FusedOptimizer&&) noexcept = default;

void FusedOptimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  if (group.has_options()) check(group.options());
  torch::optim::Optimizer::add_param_group(group);
  keep_options(param_groups().back(), group);
}

at::Tensor FusedOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  StepAccess::step(*this, {}, {});
  return loss;
}

void FusedOptimizer::step_unless(const at::Tensor& found_inf, const at::Tensor& inv_scale) {
  StepAccess::step(*this, {.found_inf = found_inf}, inv_scale);
}

bool StepAccess::is_moved_from(const FusedOptimizer& optimizer) {
  return optimizer.work_ == nullptr;
}

StepWork& StepAccess::work(FusedOptimizer& optimizer) {
  return *optimizer.work_;
}

void StepAccess::step(FusedOptimizer& optimizer, StepDecision decision,
                      const at::Tensor& inv_scale) {
  if (is_moved_from(optimizer)) return;  // as LibTorch's, which have no groups left
  at::NoGradGuard no_grad;
  StepWork& work = *optimizer.work_;
  const char* name = optimizer.name();
  double bound = 0;
  for (const auto& group : optimizer.param_groups()) {
    optimizer.check(group.options());
    bound = std::max(bound, optimizer.max_grad_norm(group.options()));
  }
  const Borrowed borrowed(work);
  work.gather(name, optimizer.param_groups());
  work.check_capture(name);
  if (work.any_moved()) take_counts_back(optimizer);

  if (!work.device.empty() && work.device.size() == work.rows.size()) {
    return step_on_device(optimizer, decision, inv_scale, bound);
  }

  std::optional<double> norm;
  if (decision.look_at_gradients) {
    if (bound > 0) norm = work.gradient_norm();
    // The norm of doubles overflows where they do not.
    const bool finite = (norm && std::isfinite(*norm)) || work.gradients_finite();
    if (!finite) decision.found_inf.fill_(1);
    if (decision.agree) decision.agree(decision.found_inf);
  }
  const bool applies = read_flag(name, "found_inf", decision.found_inf, 0.0f) == 0.0f;
  if (applies && !work.rows.empty()) {
    const float scale = read_flag(name, "inv_scale", inv_scale, 1.0f);
    work.guard.inv_scale = &scale;
    if (!work.device.empty()) work.device.set_flags({}, at::full({}, scale, at::kFloat));
    if (bound > 0) {
      const double total = norm ? *norm : work.gradient_norm();
      clip(optimizer, total * double(scale));
      if (!work.device.empty()) work.device.set_norm(at::full({}, total, at::kDouble));
    }
    optimizer.update(work);
    work.bump_versions();
  }
  if (work.context) work.context->stepped(applies);
}

// All memory is on devices that have kernels of ours: whether the step is taken is theirs to find
// out.
void StepAccess::step_on_device(FusedOptimizer& optimizer, const StepDecision& decision,
                                const at::Tensor& inv_scale, double bound) {
  StepWork& work = *optimizer.work_;
  at::Tensor found_inf = decision.found_inf;
  for (const at::Tensor& flag : {found_inf, inv_scale}) {
    if (flag.defined() && flag.numel() != 1) {
      raise<ConfigError>(optimizer.name(), "the flag and the inverse scale have one element, not ",
                         flag.numel());
    }
  }
  if (decision.look_at_gradients) {
    work.device.look(found_inf, bound > 0);
    if (decision.agree) decision.agree(found_inf);
  } else if (bound > 0) {
    work.device.find_norm();
  }
  work.device.set_flags(found_inf, inv_scale);
  optimizer.update(work);
  work.bump_versions();
  if (work.context) work.context->stepped(true);
}

void StepAccess::check_options(const FusedOptimizer& optimizer, const Options& options) {
  optimizer.check(options);
}

std::vector<void*> StepAccess::settle_counts(const FusedOptimizer& optimizer) {
  const auto& states = optimizer.state();
  std::vector<void*> untaken;
  if (is_moved_from(optimizer)) return untaken;
  optimizer.work_->device.pull_counts([&](const c10::TensorImpl* param, std::int64_t count) {
    const auto found = states.find(const_cast<c10::TensorImpl*>(param));
    if (found == states.end()) return;
    const StateKind* const kind = kind_of(*found->second);
    if (kind == nullptr) return;
    if (kind->set_step != nullptr) {
      kind->set_step(*found->second, count);
    } else if (count == 0) {
      untaken.push_back(found->first);
    }
  });
  return untaken;
}

void StepAccess::take_counts_back(FusedOptimizer& optimizer) {
  for (void* const key : settle_counts(optimizer)) optimizer.state().erase(key);
  forget_counts(optimizer);
}

void StepAccess::forget_counts(FusedOptimizer& optimizer) {
  if (!is_moved_from(optimizer)) optimizer.work_->device.forget_counts();
}

SettledStates::SettledStates(const FusedOptimizer& optimizer)
    : optimizer_(const_cast<FusedOptimizer&>(optimizer)) {
  for (void* const key : StepAccess::settle_counts(optimizer_)) {
    const auto found = optimizer_.state().find(key);
    aside_.emplace_back(key, std::move(found->second));
    optimizer_.state().erase(found);
  }
}

SettledStates::~SettledStates() {
  for (auto& [key, state] : aside_) optimizer_.state()[key] = std::move(state);
}

void StepAccess::clip(FusedOptimizer& optimizer, double norm) {
  StepWork& work = *optimizer.work_;
  for (std::size_t group = 0; group < work.group_factor.size(); ++group) {
    const double most = optimizer.max_grad_norm(optimizer.param_groups()[group].options());
    work.group_factor[group] = kernels::clip_factor(norm, most);
  }
}

void set_step_context(FusedOptimizer& optimizer, std::shared_ptr<StepContext> context) {
  if (!StepAccess::is_moved_from(optimizer)) {
    StepAccess::work(optimizer).context = std::move(context);
  }
}

void settle_step_counts(torch::optim::Optimizer& optimizer) {
  if (auto* fused = dynamic_cast<FusedOptimizer*>(&optimizer)) StepAccess::take_counts_back(*fused);
}

void step_checked(FusedOptimizer& optimizer, at::Tensor& found_inf, const at::Tensor& inv_scale,
                  const std::function<void(at::Tensor&)>& agree) {
  if (!found_inf.defined() || found_inf.numel() != 1) {
    raise<ConfigError>("step_checked", "found_inf must have one element");
  }
  StepAccess::step(optimizer, {.found_inf = found_inf, .look_at_gradients = true, .agree = agree},
                   inv_scale);
}

}  // namespace mezzo::optim
