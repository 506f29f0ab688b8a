#include "mezzo/grad_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <map>
#include <unordered_set>
#include <utility>

#include "amp/overflow_ranks.h"
#include "amp/step_record.h"
#include "bridge/device.h"
#include "casting/gradient_sums.h"
#include "core/raise.h"
#include "core/torch.h"
#include "mezzo/optim.h"
#include "parallel/agreement.h"
#include "scaling/finite_check.h"
#include "scaling/loss_scaler.h"
#include "scaling/to_device.h"

namespace mezzo::amp {
namespace {

constexpr std::string_view kInGradScaler = "GradScaler";

/// The history of an optimizer since the last update.
struct Progress {
  at::Tensor found_inf;  // defined: its gradients are unscaled
  bool agreed = false;   // over averaged gradients: `unscale_` has asked all ranks
  detail::OverflowRanks ranks;
  bool stepped = false;
};

scaling::ScaleRules rules_of(double growth, double backoff, int interval) {
  if (!(growth > 1) || !std::isfinite(growth)) {
    raise<ConfigError>(kInGradScaler, "growth_factor is ", growth, "; expected more than 1");
  }
  if (!(backoff > 0) || !(backoff < 1)) {
    raise<ConfigError>(kInGradScaler, "backoff_factor is ", backoff, "; expected between 0 and 1");
  }
  if (interval < 1)
    raise<ConfigError>(kInGradScaler, "growth_interval is ", interval, "; expected 1 or more");
  // The scale stays a normal float; torch.amp knows no other floor or ceiling, and gives up never.
  return {true, growth, backoff, interval, std::numeric_limits<float>::min(), 0x1p127, 0};
}

double checked_scale(double scale) {
  if (!(scale > 0) || !std::isfinite(static_cast<float>(scale)) || static_cast<float>(scale) == 0) {
    raise<ConfigError>(kInGradScaler, "the scale is ", scale,
                       "; expected a positive number that float can hold");
  }
  return scale;
}

/// Each once, however often the optimizer lists its parameter.
std::vector<at::Tensor> gradients_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> gradients;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& grad = parameter.grad();
      if (grad.defined() && seen.insert(grad.unsafeGetTensorImpl()).second)
        gradients.push_back(grad);
    }
  }
  return gradients;
}

/// Nothing tells the host, while a graph is captured, whether to step.
void refuse_host_decision(const torch::optim::Optimizer& optimizer) {
  for (const at::Tensor& gradient : gradients_of(optimizer)) {
    if (bridge::current_capture(gradient.device()) == 0) continue;
    raise(kInGradScaler,
          "step() while a graph is captured needs a fused optimizer of mezzo::optim, whose device "
          "decides; scale(loss).backward() may be captured alone, with step() and update() after "
          "each replay");
  }
}

}  // namespace

class GradScaler::Impl {
 public:
  explicit Impl(GradScalerOptions options)
      : enabled(options.enabled),
        scaler(rules_of(options.growth_factor, options.backoff_factor, options.growth_interval),
               checked_scale(options.init_scale)) {
    if (enabled) watch.emplace();
  }

  Progress& unscale(torch::optim::Optimizer& optimizer, std::string_view call) {
    const std::vector<at::Tensor> gradients = gradients_of(optimizer);
    if (gradients.empty())
      raise(kInGradScaler, "the optimizer has no gradients; call scale(loss).backward() first");
    if (!scaled && !scaled_in_graph) {
      raise(kInGradScaler, call,
            " would divide gradients by the scale, but scale() was not called since the last "
            "update(): no loss was multiplied; call scale(loss).backward() for every loss");
    }
    const auto world = parallel::world_if_any();
    if (world && bridge::current_capture(gradients.front().device()) != 0) {
      raise(kInGradScaler, call,
            " while a graph is captured: ranks agree about the step over the host; capture "
            "scale(loss).backward() alone");
    }
    scaler.to(gradients.front().device());
    Progress one;
    const at::Tensor inverse = scaler.inverse();
    one.found_inf = at::zeros({}, inverse.options().dtype(at::kFloat));
    one.agreed = world && parallel::spread_by_reduction(gradients, *world);
    scaling::unscale_and_check(gradients, inverse, one.found_inf);
    // A rank whose averages became infinite would skip alone otherwise.
    if (one.agreed) agree(one, gradients, *world);
    return progress.insert_or_assign(&optimizer, std::move(one)).first->second;
  }

  static void agree(Progress& one, const std::vector<at::Tensor>& gradients,
                    const parallel::ProcessGroup& world) {
    const parallel::AgreedFlag agreed = parallel::agree_overflow(
        one.found_inf, [] { return std::nullopt; }, world);
    one.found_inf = agreed.found_inf;
    one.ranks =
        detail::OverflowRanks::of_averages(parallel::nonfinite_ranks(gradients), agreed.origin,
                                           world, [](std::size_t) { return std::string(); });
  }

  bool enabled;
  bool scaled = false;           // something was, since the last update
  bool scaled_in_graph = false;  // each replay scales it
  scaling::LossScaler scaler;
  std::map<const torch::optim::Optimizer*, Progress> progress;
  std::optional<parallel::OverflowWatch> watch;
};

GradScaler::GradScaler(GradScalerOptions options) : impl_(std::make_unique<Impl>(options)) {}
GradScaler::GradScaler(GradScaler&&) noexcept = default;
GradScaler& GradScaler::operator=(GradScaler&&) noexcept = default;
GradScaler::~GradScaler() = default;

at::Tensor GradScaler::scale(const at::Tensor& tensor) {
  if (!impl_->enabled) return tensor;
  impl_->scaler.to(tensor.device());
  impl_->scaled = true;
  if (bridge::current_capture(tensor.device()) != 0) impl_->scaled_in_graph = true;
  at::Tensor scaled = impl_->scaler.multiply(tensor);
  casting::add_up_in_float_behind(scaled);
  return scaled;
}

std::vector<at::Tensor> GradScaler::scale(at::TensorList tensors) {
  std::vector<at::Tensor> scaled;
  for (const at::Tensor& tensor : tensors) scaled.push_back(scale(tensor));
  return scaled;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!impl_->enabled) return;
  const auto known = impl_->progress.find(&optimizer);
  if (known != impl_->progress.end()) {
    raise(kInGradScaler, known->second.stepped
                             ? "unscale_() after step() without update() between them"
                             : "unscale_() a second time without update() since the first");
  }
  impl_->unscale(optimizer, "unscale_()");
}

StepResult GradScaler::step(torch::optim::Optimizer& optimizer) {
  auto record = std::make_shared<detail::StepRecord>();
  if (!impl_->enabled) {
    optimizer.step();
    return StepResult(record);
  }
  auto* const fused = dynamic_cast<optim::FusedOptimizer*>(&optimizer);
  if (fused == nullptr) refuse_host_decision(optimizer);
  const auto known = impl_->progress.find(&optimizer);
  if (known != impl_->progress.end() && known->second.stepped) {
    raise(kInGradScaler, "step() a second time without update() since the first");
  }
  Progress& one =
      known != impl_->progress.end() ? known->second : impl_->unscale(optimizer, "step()");
  record->reason = "a gradient is not finite";
  record->ranks = one.ranks;
  record->scale_before = record->scale_after = impl_->scaler.value();
  if (fused != nullptr) {
    // It takes the flag where that is, so that nobody waits for a device.
    fused->step_unless(one.found_inf);
    record->found_inf = one.found_inf;
  } else {
    record->applied = one.found_inf.item<float>() == 0;
    if (record->applied) optimizer.step();
  }
  one.stepped = true;
  return StepResult(record);
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!impl_->enabled) return;
  if (new_scale) {
    impl_->scaler.set_state({checked_scale(*new_scale), impl_->scaler.state().unskipped, 0});
    impl_->progress.clear();
    impl_->scaled = false;
    return;
  }
  if (impl_->progress.empty())
    raise(kInGradScaler, "update() before any step() or unscale_() since the last one");
  const at::NoGradGuard no_grad;
  at::Tensor found = at::zeros({}, at::TensorOptions(impl_->scaler.device()).dtype(at::kFloat));
  bool agreed = true;
  for (const auto& [optimizer, one] : impl_->progress) {
    found.add_(scaling::to_device(one.found_inf, found.device()));
    agreed = agreed && one.agreed;
  }
  const auto world = parallel::world_if_any();
  if (world && !agreed) found = parallel::agree_max(found, *world);
  impl_->scaler.update(found);
  impl_->progress.clear();
  impl_->scaled = false;
}

double GradScaler::get_scale() const {
  return impl_->enabled ? impl_->scaler.state().scale : 1.0;
}

bool GradScaler::is_enabled() const {
  return impl_->enabled;
}

GradScalerState GradScaler::state_dict() const {
  const scaling::ScaleState state = impl_->scaler.state();
  const scaling::ScaleRules& rules = impl_->scaler.rules();
  return {state.scale, rules.growth, rules.backoff, static_cast<int>(rules.growth_interval),
          static_cast<int>(state.unskipped)};
}

void GradScaler::load_state_dict(const GradScalerState& state) {
  if (state.growth_tracker < 0)
    raise(kInGradScaler, "growth_tracker is ", state.growth_tracker, "; expected 0 or more");
  scaling::LossScaler loaded(
      rules_of(state.growth_factor, state.backoff_factor, state.growth_interval),
      checked_scale(state.scale));
  loaded.to(impl_->scaler.device());
  loaded.set_state({state.scale, state.growth_tracker, 0});
  impl_->scaler = loaded;
}

}  // namespace mezzo::amp
