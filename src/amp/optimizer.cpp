#include "mezzo/optimizer.h"

#include <cmath>

#include "amp/optimizer_state.h"
#include "amp/session.h"
#include "core/raise.h"
#include "core/torch.h"
#include "mezzo/optim.h"
#include "mezzo/schedule.h"

namespace mezzo::amp::detail {

std::int64_t steps_made(const amp::Optimizer& optimizer) {
  return optimizer.shared()->steps().steps_made();
}

}  // namespace mezzo::amp::detail

namespace mezzo::amp {

Optimizer::Optimizer(std::shared_ptr<detail::OptimizerState> state) : state_(std::move(state)) {}

const std::shared_ptr<detail::OptimizerState>& Optimizer::shared() const {
  if (state_ == nullptr) {
    raise<ConfigError>("optimizer",
                       "this handle is empty; assign what initialize returned before it is used");
  }
  return state_;
}

StepResult Optimizer::step() {
  StepResult result(shared()->steps().run());
  state_->rank_check().note_step();
  return result;
}

StepResult Optimizer::step(const torch::optim::Optimizer::LossClosure& closure) {
  StepResult result(shared()->steps().run(closure));
  state_->rank_check().note_step();
  return result;
}

void Optimizer::expect_equal_ranks() const {
  if (shared()->session().enabled()) detail::expect_equal_ranks(state_->session());
}

void Optimizer::zero_grad(bool set_to_none) {
  shared()->zero_grad(set_to_none);
}

void Optimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  if (auto* fused = dynamic_cast<optim::FusedOptimizer*>(&shared()->inner())) {
    fused->add_param_group(group);
  } else {
    shared()->inner().add_param_group(group);
  }
  if (shared()->session().enabled()) shared()->slots().sync();
}

torch::optim::Optimizer& Optimizer::inner() {
  return shared()->inner();
}

const torch::optim::Optimizer& Optimizer::inner() const {
  return shared()->inner();
}

std::vector<torch::optim::OptimizerParamGroup>& Optimizer::param_groups() {
  shared()->steps().unscale_for_program();
  return shared()->inner().param_groups();
}

Optimizer::States& Optimizer::state() {
  return inner().state();
}

const Optimizer::States& Optimizer::state() const {
  return inner().state();
}

const Properties& Optimizer::properties() const {
  return shared()->session().plan().properties;
}

double Optimizer::loss_scale(int loss_id) const {
  const scaling::LossScaler& scaler = shared()->session().scaler(loss_id, "loss_scale");
  return shared()->session().enabled() ? scaler.state().scale : 1.0;
}

void Optimizer::set_loss_scale(double scale, int loss_id) {
  scaling::LossScaler& scaler = shared()->session().scaler(loss_id, "set_loss_scale");
  scaler.set_state({LossScale(scale).value(), 0, 0});
}

std::int64_t Optimizer::applied_steps() const {
  return shared()->steps().applied_steps();
}

std::int64_t Optimizer::skipped_steps() const {
  return shared()->steps().skipped_steps();
}

std::int64_t Optimizer::empty_steps() const {
  return shared()->steps().empty_steps();
}

void Optimizer::invalidate_casts() {
  if (shared()->session().enabled()) shared()->slots().take_all_writes();
}

at::Tensor Optimizer::scale(const at::Tensor& tensor, int loss_id) const {
  if (!shared()->session().enabled()) return tensor;
  return shared()->session().scaler(loss_id, "scale").multiply(tensor);
}

void Optimizer::unscale(at::TensorList tensors, int loss_id) const {
  if (!shared()->session().enabled()) return;
  const at::Tensor inverse = shared()->session().scaler(loss_id, "unscale").inverse();
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) tensor.mul_(inverse.to(tensor.device()));
  }
}

void Optimizer::protect(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) raise<ConfigError>("protect", "got an undefined tensor");
  }
  shared()->snapshot().watch(tensors);
}

std::vector<at::Tensor> master_params(const Optimizer& optimizer) {
  detail::OptimizerState& state = *optimizer.shared();
  state.steps().unscale_for_program();
  if (state.session().plan().split_masters) {
    state.session().weights().absorb();
    state.slots().give_masters_memory();
  }
  std::vector<at::Tensor> params;
  for (const auto& group : optimizer.inner().param_groups()) {
    params.insert(params.end(), group.params().begin(), group.params().end());
  }
  return params;
}

StepResult::StepResult(std::shared_ptr<const detail::StepRecord> record)
    : record_(std::move(record)) {}

bool StepResult::applied() const {
  return record_->is_applied();
}

bool StepResult::empty() const {
  return record_->empty;
}

double StepResult::scale_before() const {
  return record_->scale_before.read();
}

double StepResult::scale_after() const {
  return record_->scale_after.read();
}

std::string StepResult::reason() const {
  return applied() ? std::string() : record_->reason + record_->ranks.describe();
}

}  // namespace mezzo::amp
