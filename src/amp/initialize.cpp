#include "mezzo/initialize.h"

#include <cmath>

#include "amp/checks.h"
#include "amp/model_state.h"
#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "amp/param_state.h"
#include "amp/session.h"
#include "bridge/device_index.h"
#include "bridge/proofs.h"
#include "casting/hardware.h"
#include "core/raise.h"
#include "core/scalar_type.h"
#include "kernels/cuda_driver.h"
#include "parallel/agreement.h"

namespace mezzo::amp::detail {
namespace {

/// Adam's eps = 1e-8 is zero in half: a denominator of zero, and NaN weights. A number of half the
/// smallest one, or less, is rounded to zero.
bool vanishes(const DTypeRow& low, double eps) {
  return eps <= low.smallest_normal * low.epsilon / 2;
}

void tell_vanishing_eps(Session& session) {
  for (const auto& optimizer : session.optimizers()) {
    for (const auto& group : optimizer->inner().param_groups()) {
      const double eps = eps_of(group);
      if (eps <= 0) continue;
      for (const at::Tensor& parameter : group.params()) {
        if (!is_low(parameter)) continue;
        const DTypeRow& low = *row_of(parameter.scalar_type());
        if (!vanishes(low, eps)) continue;
        const double enough =
            std::pow(10, std::ceil(std::log10(low.smallest_normal * low.epsilon)));
        session.say_once("eps",
                         c10::str("mezzo: the optimizer's eps of ", eps, " is zero in ", low.alias,
                                  ": set eps to ", enough, " or more, or keep float masters (O2)"));
      }
    }
  }
}

/// The driver may know of fewer devices than LibTorch, where it is not the one that LibTorch asks.
void tell_slow_device(Session& session, const at::Device& device, at::ScalarType low) {
  const auto devices = kernels::CudaDriver::of_this_machine().devices();
  const auto index = static_cast<std::size_t>(bridge::index_of(device));
  if (index >= devices.size()) return;
  const std::string slow = why_slow(devices[index], low);
  if (slow.empty()) return;
  session.say_once("slow device",
                   c10::str("mezzo: ", session.plan().properties.opt_level, " computes in ",
                            row_of(low)->alias, ", and ", name_of(devices[index], index), " has ",
                            slow, low == at::kBFloat16 ? "; O1 and O2 compute in float16" : ""));
}

/// A level is chosen for speed more often than not: say where this machine has none to give.
void tell_slow_level(Session& session) {
  const Plan& plan = session.plan();
  const bool is_low_level = plan.policy.has_value() || (plan.convert && is_low(*plan.convert));
  if (!session.enabled() || session.options().verbosity < 1 || !is_low_level) return;
  const at::ScalarType low = plan.policy ? plan.policy->low() : *plan.convert;
  for (const auto& model : session.models()) {
    const auto parameters = model->module().parameters();
    if (parameters.empty()) continue;
    const at::Device device = parameters.front().device();
    if (device.is_cuda()) tell_slow_device(session, device, low);
    if (!device.is_cpu()) continue;
    const ComputeChoice choice = processor_choice(low);
    const bool native = choice.mode == ComputeMode::kNative;
    if (native && choice.low_over_float < 1.0) return;
    session.say_once("slow level",
                     c10::str("mezzo: ", plan.properties.opt_level,
                              " saves no time on this processor: ", choice.why,
                              native ? "" : ", so products are computed in float32 and rounded"));
    return;
  }
}

bool is_float64(const Session& session) {
  bool any = false;
  for (const auto& model : session.models()) {
    for (const at::Tensor& parameter : model->module().parameters()) {
      if (!parameter.is_floating_point()) continue;
      if (parameter.scalar_type() != at::kDouble) return false;
      any = true;
    }
  }
  return any;
}

bool is_first_rank() {
  const auto world = parallel::world_if_any();
  return !world || world->rank() == 0;
}

}  // namespace

Prepared prepare(std::vector<std::shared_ptr<torch::nn::Module>> modules,
                 std::vector<OptimizerRef> optimizers, amp::Options options) {
  Plan plan = resolve(options);
  check_arguments(modules, optimizers, plan);
  if (options.enabled) KeptFloat(options.keep_float).check(modules);
  auto session = std::make_shared<Session>(std::move(options), std::move(plan));
  session->exclude_old_interface();
  session->adopt(std::move(modules), std::move(optimizers));
  session->follow_program();
  if (is_first_rank())
    session->say(describe(session->options(), session->plan(), is_float64(*session)));
  if (is_first_rank() && !is_float64(*session)) tell_slow_level(*session);
  tell_vanishing_eps(*session);
  for (const auto& model : session->models()) bridge::prove_kernels(model->module().parameters());

  // Handles share the session's lifetime, whichever of its parts they point to.
  Prepared prepared;
  for (const auto& model : session->models()) prepared.models.emplace_back(session, model.get());
  for (const auto& optimizer : session->optimizers()) {
    prepared.optimizers.emplace_back(session, optimizer.get());
  }
  return prepared;
}

void refuse_wrapped_model() {
  raise<ConfigError>(
      "initialize",
      "got a network that is wrapped already; initialize the bare network first, then put parallel "
      "wrappers around what it returns");
}

}  // namespace mezzo::amp::detail
