#include "gluon/trainer_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "bridge/device.h"
#include "bridge/multi_tensor.h"
#include "bridge/tensors.h"
#include "casting/weights.h"
#include "mezzo/autocast.h"
#include "mezzo/process_group.h"
#include "scaling/finite_check.h"

namespace mezzo::gluon::detail {
namespace {

constexpr const char* kTrainerWhere = "gluon::Trainer";

void check_store(const TrainerOptions& options) {
  if (options.update_on_kvstore) {
    raise<ConfigError>(kTrainerWhere,
                       "update_on_kvstore = true: a store that sums gradients and updates weights "
                       "in one call leaves no moment to check gradients for overflow; expected "
                       "false");
  }
}

void check_replicas(const std::vector<NamedParameters>& replicas) {
  if (replicas.empty()) raise<ConfigError>(kTrainerWhere, "there are no replicas");
  const NamedParameters& first = replicas.front();
  for (std::size_t r = 1; r < replicas.size(); ++r) {
    if (replicas[r].names != first.names) {
      raise<ConfigError>(kTrainerWhere, "replica ", r, " has other parameters than replica 0");
    }
    for (std::size_t i = 0; i < first.tensors.size(); ++i) {
      const at::Tensor &own = replicas[r].tensors[i], &wanted = first.tensors[i];
      if (own.sizes() == wanted.sizes() && own.scalar_type() == wanted.scalar_type() &&
          own.requires_grad() == wanted.requires_grad()) {
        continue;
      }
      raise<ConfigError>(kTrainerWhere, "parameter '", first.names[i], "' is ",
                         bridge::describe(own), " in replica ", r, " and ",
                         bridge::describe(wanted), " in replica 0");
    }
  }
}

/// All weights of an optimizer of LibTorch, named by their place.
NamedParameters parameters_of(const torch::optim::Optimizer& optimizer) {
  NamedParameters all;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      all.names.push_back("parameter " + std::to_string(all.names.size()));
      all.tensors.push_back(parameter);
    }
  }
  return all;
}

std::vector<at::Tensor> gradients_of(const NamedParameters& parameters,
                                     const std::vector<std::size_t>& which) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(which.size());
  for (const std::size_t i : which) gradients.push_back(parameters.tensors[i].grad());
  return gradients;
}

}  // namespace

TrainerState::TrainerState(std::vector<NamedParameters> given, const std::string& optimizer,
                           const OptimizerParams& params, TrainerOptions given_options)
    : options(std::move(given_options)), replicas(std::move(given)) {
  check_store(options);
  check_replicas(replicas);
  own = std::make_unique<MxnetOptimizer>(replicas.front(), optimizer, params, options);
  rescale_grad = own->rescale_grad();
  start();
}

TrainerState::TrainerState(torch::optim::Optimizer& optimizer, TrainerOptions given_options)
    : options(std::move(given_options)), replicas{parameters_of(optimizer)}, foreign(&optimizer) {
  check_store(options);
  if (!options.lr_mult.empty() || !options.wd_mult.empty()) {
    raise<ConfigError>(kTrainerWhere,
                       "lr_mult and wd_mult with an optimizer of LibTorch; give it parameter "
                       "groups with options of their own instead");
  }
  if (replicas.front().tensors.empty())
    raise<ConfigError>(kTrainerWhere, "there are no parameters");
  start();
}

TrainerState::~TrainerState() {
  leave_live(*this);
  for (const NamedParameters& replica : replicas) casting::leave_casts(replica.tensors);
}

void TrainerState::start() {
  std::vector<std::vector<at::Tensor>> all;
  for (const NamedParameters& replica : replicas) all.push_back(replica.tensors);
  fresh_.emplace(std::move(all));
  factor = rescale_grad;
  share_weights_with_ranks();
  share_weights();
  enter_live(*this);  // last: nobody leaves for a trainer that was not made
}

void TrainerState::share_weights_with_ranks() {
  if (ranks_share_weights_ || !parallel::is_initialized()) return;
  const at::NoGradGuard no_grad;
  parallel::broadcast_all(replicas.front().tensors);
  ranks_share_weights_ = true;
}

void TrainerState::share_weights() {
  const at::NoGradGuard no_grad;
  for (std::size_t r = 1; r < replicas.size(); ++r) {
    for (std::size_t i = 0; i < replicas[r].tensors.size(); ++i) {
      replicas[r].tensors[i].copy_(weight(i), /*non_blocking=*/true);
    }
  }
  for (const NamedParameters& replica : replicas) casting::refresh_casts(replica.tensors);
}

void TrainerState::check_batch_size(double batch_size) const {
  if (!(batch_size > 0) || !std::isfinite(batch_size)) {
    raise<ConfigError>(kTrainerWhere, "the batch size is ", batch_size,
                       "; expected a number above 0");
  }
}

void TrainerState::refuse_in_capture() const {
  if (bridge::current_capture(weight(0).device()) == 0) return;
  raise(
      kTrainerWhere,
      "a step while a graph is captured: a trainer counts its updates, and decides about them, on "
      "the host; capture forward and backward alone, or use amp::initialize with a fused "
      "optimizer of mezzo::optim");
}

void TrainerState::check_fresh() const {
  for (std::size_t i = 0; i < replicas.front().tensors.size(); ++i) {
    if (!weight(i).requires_grad()) continue;
    for (std::size_t r = 0; r < replicas.size(); ++r) {
      if (fresh_->is_fresh(r, i)) continue;
      raise(kTrainerWhere, "the gradient of '", replicas.front().names[i], "'",
            replicas.size() > 1 ? " of replica " + std::to_string(r) : "",
            " is stale: no backward pass has reached it since the last step. Nothing was updated. "
            "Pass ignore_stale_grad = true where that is meant");
    }
  }
}

std::vector<std::size_t> TrainerState::chosen() const {
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < replicas.front().tensors.size(); ++i) {
    if (!weight(i).requires_grad()) continue;
    bool any = false;
    for (std::size_t r = 0; r < replicas.size(); ++r) any = any || fresh_->is_fresh(r, i);
    if (any) which.push_back(i);
  }
  return which;
}

void TrainerState::step(double batch_size, bool ignore_stale_grad) {
  refuse_in_capture();
  check_batch_size(batch_size);
  if (!ignore_stale_grad) check_fresh();
  allreduce();
  update(batch_size, ignore_stale_grad);
}

void TrainerState::update(double batch_size, bool ignore_stale_grad) {
  refuse_in_capture();
  check_batch_size(batch_size);
  if (!ignore_stale_grad) check_fresh();
  if (replicas.size() > 1 && !is_reduced_) {
    raise(kTrainerWhere, "update() without allreduce_grads(): the gradients of ", replicas.size(),
          " replicas have not been summed");
  }
  const at::NoGradGuard no_grad;
  const amp::DisableCasts no_casts;
  const std::vector<std::size_t> which = is_reduced_ ? reduced_ : chosen();
  is_reduced_ = false;
  const double rescale = std::exchange(factor, rescale_grad) / batch_size;
  last_step_skipped = scaler && overflows(which);
  if (scaler && !which.empty()) {
    scaler->advance(last_step_skipped);
    if (scaler->exhausted()) raise_exhausted(which);
  }
  if (last_step_skipped) return;
  if (own) {
    own->update(which, rescale);
  } else {
    update_foreign(which, rescale);
  }
  fresh_->forget();
  share_weights();
}

bool TrainerState::overflows(const std::vector<std::size_t>& which) const {
  bool overflow = false;
  if (!which.empty()) {
    overflow = !bridge::all_finite(kTrainerWhere, gradients_of(replicas.front(), which));
  }
  if (!parallel::is_initialized() || parallel::world_size() == 1) return overflow;
  const at::Tensor flag =
      at::full({1}, overflow ? 1.0 : 0.0, weight(0).options().dtype(at::kFloat));
  parallel::world().all_reduce(flag, parallel::ReduceOp::kMax);
  return flag.item<float>() != 0.0F;
}

void TrainerState::raise_exhausted(const std::vector<std::size_t>& which) const {
  const std::size_t bad = scaling::first_nonfinite(gradients_of(replicas.front(), which));
  raise(kTrainerWhere, "the loss scale is at its floor of ", scaler->scale(),
        " and 50 steps in a row were skipped: the gradient of '",
        bad < which.size() ? replicas.front().names[which[bad]] : "(another rank's)",
        "' is not finite whatever the scale");
}

void TrainerState::update_foreign(const std::vector<std::size_t>& which, double rescale) {
  const NamedParameters& all = replicas.front();
  for (const at::Tensor& grad : gradients_of(all, which)) grad.mul_(rescale);
  ++foreign_updates;
  if (options.lr_scheduler) {
    for (auto& group : foreign->param_groups()) {
      group.options().set_lr((*options.lr_scheduler)(foreign_updates));
    }
  }
  // Stale gradients step aside: the optimizer would use them.
  std::vector<at::Tensor> aside(all.tensors.size());
  for (std::size_t i = 0; i < all.tensors.size(); ++i) {
    if (std::ranges::binary_search(which, i)) continue;
    std::swap(aside[i], all.tensors[i].mutable_grad());
  }
  foreign->step();
  for (std::size_t i = 0; i < aside.size(); ++i) {
    if (aside[i].defined()) std::swap(aside[i], all.tensors[i].mutable_grad());
  }
}

void TrainerState::zero_grad() {
  for (const NamedParameters& replica : replicas) {
    for (const at::Tensor& parameter : replica.tensors) parameter.mutable_grad().reset();
  }
}

void TrainerState::unscale() {
  const at::NoGradGuard no_grad;
  const amp::DisableCasts no_casts;
  if (factor != 1) {
    for (const NamedParameters& replica : replicas) {
      for (const at::Tensor& parameter : replica.tensors) {
        if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
      }
    }
  }
  factor = 1;
}

double TrainerState::learning_rate() const {
  if (own) return own->learning_rate();
  if (options.lr_scheduler) return (*options.lr_scheduler)(foreign_updates);
  return foreign->param_groups().front().options().get_lr();
}

void TrainerState::set_learning_rate(double learning_rate) {
  if (own) {
    own->set_learning_rate(learning_rate);
    return;
  }
  if (options.lr_scheduler || !(learning_rate >= 0)) {
    raise<ConfigError>(kTrainerWhere, "set_learning_rate(", learning_rate,
                       "); expected 0 or more, and no lr_scheduler beside it");
  }
  for (auto& group : foreign->param_groups()) group.options().set_lr(learning_rate);
}

}  // namespace mezzo::gluon::detail
