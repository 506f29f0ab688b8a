#include "amp/loss_scope.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>

#include "amp/module_types.h"
#include "amp/optimizer_state.h"
#include "amp/settle.h"
#include "casting/gradient_sums.h"
#include "core/raise.h"
#include "parallel/agreement.h"

namespace mezzo {
namespace amp::detail {
namespace {

constexpr std::string_view kInLossScope = "scale_loss";

void check_loss(const at::Tensor& loss) {
  if (!loss.defined()) raise<ConfigError>(kInLossScope, "the loss is an undefined tensor");
  if (!loss.is_floating_point()) {
    raise<ConfigError>(kInLossScope, "the loss is of type ", loss.scalar_type(),
                       "; expected a floating type");
  }
  if (loss.numel() != 1) {
    raise<ConfigError>(kInLossScope, "the loss has shape ", loss.sizes(),
                       "; expected one element: reduce it with mean() or sum() first");
  }
}

/// A number for a scope that leaves gradients scaled, its own in the whole process.
std::int64_t new_block() {
  static std::atomic<std::int64_t> last = 0;
  return ++last;
}

/// Gradients live on the device of the first parameter, and so do scale and flag.
at::Device device_of(OptimizerState& optimizer, const at::Tensor& loss) {
  const std::vector<Slot>& slots = optimizer.slots().all();
  return slots.empty() ? loss.device() : slots.front().weight.device();
}

}  // namespace

LossScope::LossScope(const at::Tensor& loss,
                     const std::vector<std::shared_ptr<OptimizerState>>& optimizers,
                     amp::ScaleLossOptions options)
    : optimizers_(optimizers), options_(options), exceptions_at_entry_(std::uncaught_exceptions()) {
  if (optimizers_.empty()) raise<ConfigError>(kInLossScope, "got no optimizer");
  Session& session = optimizers_.front()->session();
  for (const auto& optimizer : optimizers_) {
    if (optimizer->session().enabled() != session.enabled()) {
      raise<ConfigError>(kInLossScope,
                         "some of the optimizers were initialized with enabled = false and others "
                         "were not; a loss has one scale, so enable all of them or none");
    }
  }
  if (!session.enabled()) {
    scaled_ = loss;
    return;
  }
  check_loss(loss);
  scaling::LossScaler& scaler = session.scaler(options_.loss_id, kInLossScope);
  for (const auto& optimizer : optimizers_) {
    for (const OptimizerState* other : states_) {
      if (other == optimizer.get())
        raise<ConfigError>(kInLossScope, "an optimizer was given twice");
    }
    if (&optimizer->session() != &session)
      optimizer->session().scaler(options_.loss_id, kInLossScope);
    states_.push_back(optimizer.get());
  }
  for (OptimizerState* state : states_) {
    hidden_.emplace_back(state->session());
    state->plain_training().stop();
  }
  for (OptimizerState* state : states_) state->check_entry(kInLossScope);
  settle_shared(states_, session);
  for (const OptimizerState* state : states_) state->scope().check_gradients_at_entry(kInLossScope);
  scaler.to(device_of(*states_.front(), loss));

  loss_ = loss.detach();
  scaled_ = scaler.is_one() ? (is_low(loss) ? loss.to(at::kFloat) : loss) : scaler.multiply(loss);
  casting::add_up_in_float_behind(scaled_);
  WeightSet in_buckets;
  for (OptimizerState* state : states_) state->enter_scope(scaler, in_buckets);
  session_ = &session;
  reductions_ = parallel::reductions_of(gradients_that_ranks_share());
  open_ = was_open_ = true;
}

LossScope::~LossScope() {
  end();
}

void LossScope::check_open() const {
  if (!was_open_ || open_) return;
  raise(kInLossScope,
        "backward() after the scope was closed: its gradients would stay scaled; open another "
        "scope for another backward pass");
}

void LossScope::close() {
  try {
    leave();
  } catch (...) {
    release();
    throw;
  }
  release();
}

void LossScope::leave() {
  if (!open_) return;
  open_ = false;
  try {
    settle_or_defer();
  } catch (...) {
    for (OptimizerState* state : states_) state->scope().abandon();
    throw;
  }
  if (listener_) listener_(nullptr);
}

bool LossScope::stays_scaled() const {
  // Several optimizers of a loss share its verdict, which none of them can give alone at its step.
  if (options_.delay_unscale || (states_.size() == 1 && session_->defers_unscale())) return true;
  return std::ranges::any_of(
      states_, [](OptimizerState* state) { return state->gradients().wait_for_reduction(); });
}

/// None if this process decides alone, or does not look.
std::vector<at::Tensor> LossScope::gradients_that_ranks_share() const {
  std::vector<at::Tensor> all;
  if (!session_->plan().check_finite || !session_->deciding_ranks()) return all;
  for (OptimizerState* state : states_) {
    const std::vector<at::Tensor> of_one = state->gradients().of_weights();
    all.insert(all.end(), of_one.begin(), of_one.end());
  }
  return all;
}

/// An exception after a backward pass whose gradients the ranks have averaged: the others are on
/// their way to agree on the flag. They skip, since this rank will not make their step.
void LossScope::make_others_skip() {
  if (stays_scaled() || options_.delay_overflow_check) return;
  const std::vector<at::Tensor> gradients = gradients_that_ranks_share();
  const auto group = session_->deciding_ranks();
  if (!group || !parallel::spread_by_reduction(gradients, *group)) return;
  if (parallel::reductions_of(gradients) == reductions_) return;
  scaling::LossScaler& scaler = session_->scaler(options_.loss_id, kInLossScope);
  const at::TensorOptions like_flag = scaler.inverse().options().dtype(at::kFloat);
  // Scales stay equal: theirs falls.
  if (parallel::make_others_skip(like_flag.device(), *group))
    scaler.update(at::ones({}, like_flag));
}

void LossScope::settle_or_defer() {
  settle_other_losses(states_, *session_, options_.loss_id);
  if (!stays_scaled()) {
    settle(states_, *session_, options_.loss_id, options_.delay_overflow_check);
    if (session_->scaler(options_.loss_id, kInLossScope).on_host()) {
      for (OptimizerState* state : states_) state->scope().note_loss(loss_);
    }
    return;
  }
  const scaling::LossScaler& scaler = session_->scaler(options_.loss_id, kInLossScope);
  const StillScaled scaled{options_.loss_id,        scaler.value(),
                           scaler.inverse(),        options_.delay_overflow_check,
                           !options_.delay_unscale, new_block()};
  for (OptimizerState* state : states_) state->scope().leave_scaled(scaled);
}

void LossScope::undo() {
  if (!open_) return;
  open_ = false;
  try {
    make_others_skip();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the next collective says it
  }
  // In reverse: the first owner of a shared parameter has what was set aside.
  std::for_each(states_.rbegin(), states_.rend(),
                [](OptimizerState* state) { state->scope().undo(); });
  release();
}

void LossScope::release() noexcept {
  if (!was_open_) return;
  listener_ = nullptr;
  hidden_.clear();
  states_.clear();
  session_ = nullptr;
  optimizers_.clear();
}

void LossScope::end() noexcept {
  try {
    if (std::uncaught_exceptions() > exceptions_at_entry_) {
      undo();
    } else {
      leave();
    }
  } catch (...) {
    for (OptimizerState* state : states_) state->scope().keep_error(std::current_exception());
    if (listener_) listener_(std::current_exception());
  }
}

}  // namespace amp::detail

namespace amp {

ScaledLoss::ScaledLoss(std::unique_ptr<detail::LossScope> scope) : scope_(std::move(scope)) {}
ScaledLoss::ScaledLoss(ScaledLoss&&) noexcept = default;
ScaledLoss::~ScaledLoss() = default;

const at::Tensor& ScaledLoss::operator*() const {
  return scope_->scaled();
}

const at::Tensor* ScaledLoss::operator->() const {
  return &scope_->scaled();
}

void ScaledLoss::backward(const at::Tensor& gradient, std::optional<bool> retain_graph,
                          bool create_graph) {
  scope_->check_open();
  try {
    scope_->scaled().backward(gradient, retain_graph, create_graph);
  } catch (...) {
    // Caught by the program inside of the scope, it would be nothing to the scope's end.
    scope_->undo();
    throw;
  }
}

void ScaledLoss::close() {
  scope_->close();
}

namespace {

template <typename List>
ScaledLoss open_scope(const at::Tensor& loss, const List& optimizers, ScaleLossOptions options) {
  std::vector<std::shared_ptr<detail::OptimizerState>> states;
  for (const Optimizer& optimizer : optimizers) states.push_back(optimizer.shared());
  return ScaledLoss(std::make_unique<detail::LossScope>(loss, states, options));
}

}  // namespace

ScaledLoss scale_loss(const at::Tensor& loss, Optimizer& optimizer, ScaleLossOptions options) {
  return open_scope(loss, std::span<Optimizer>(&optimizer, 1), options);
}

ScaledLoss scale_loss(const at::Tensor& loss,
                      std::initializer_list<std::reference_wrapper<Optimizer>> optimizers,
                      ScaleLossOptions options) {
  return open_scope(loss, optimizers, options);
}

ScaledLoss scale_loss(const at::Tensor& loss, std::span<Optimizer> optimizers,
                      ScaleLossOptions options) {
  return open_scope(loss, optimizers, options);
}

}  // namespace amp
}  // namespace mezzo
