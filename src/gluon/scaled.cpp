// init_trainer, scale_loss, unscale, and the scale that output operators take.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <mutex>

#include "core/scalar_type.h"
#include "gluon/trainer_state.h"
#include "mezzo/autocast.h"
#include "mezzo/gluon.h"

namespace mezzo::gluon {
namespace detail {
namespace {

struct ScaledTrainers {
  std::mutex mutex;
  std::vector<TrainerState*> alive;
};

ScaledTrainers& scaled_trainers() {
  static ScaledTrainers* const trainers = new ScaledTrainers;  // trainers may outlive main
  return *trainers;
}

}  // namespace

void enter_scaled(TrainerState& trainer) {
  const std::lock_guard lock(scaled_trainers().mutex);
  scaled_trainers().alive.push_back(&trainer);
}

void leave_scaled(TrainerState& trainer) {
  const std::lock_guard lock(scaled_trainers().mutex);
  std::erase(scaled_trainers().alive, &trainer);
}

double output_scale() {
  const std::lock_guard lock(scaled_trainers().mutex);
  const std::vector<TrainerState*>& alive = scaled_trainers().alive;
  if (alive.empty()) return 1;
  if (alive.size() > 1) {
    raise<ConfigError>("gluon", "an output operator with ", alive.size(),
                       " trainers that have a loss scale: its gradient ignores what arrives from "
                       "above, and nothing says whose scale it should take. Use an ordinary loss "
                       "with scale_loss, or one trainer");
  }
  alive.front()->mark_scaled();
  return alive.front()->scaler->scale();
}

}  // namespace detail

namespace {

constexpr const char* kScaleLoss = "gluon::scale_loss";

at::Tensor scaled_by(const at::Tensor& loss, double scale) {
  if (!loss.defined() || !loss.is_floating_point()) {
    raise<ConfigError>(kScaleLoss, "a loss is ",
                       loss.defined() ? "no tensor of floating type" : "undefined");
  }
  if (!loss.requires_grad()) {
    raise<ConfigError>(kScaleLoss,
                       "autograd does not record this loss: it was computed without gradients, or "
                       "from nothing that wants one");
  }
  return (is_low(loss.scalar_type()) ? loss.to(at::kFloat) : loss).mul(scale);
}

}  // namespace

void init_trainer(Trainer& trainer, TrainerScale scale) {
  constexpr const char* kInitTrainer = "gluon::init_trainer";
  detail::TrainerState& state = trainer.state();
  if (!detail::has_live_handle()) {
    raise<ConfigError>(kInitTrainer, "AMP not initialized, did you forget to call gluon::init()?");
  }
  if (state.scaler) {
    raise<ConfigError>(kInitTrainer,
                       "this trainer has a loss scale already; call it once for each trainer");
  }
  state.scaler.emplace(scale);
  if (state.loaded_scale) state.scaler->set_numbers(*state.loaded_scale);
  state.loaded_scale.reset();
  detail::enter_scaled(state);
}

ScaledLoss scale_loss(const at::Tensor& loss, Trainer& trainer) {
  return scale_loss(std::vector<at::Tensor>{loss}, trainer);
}

ScaledLoss scale_loss(const std::vector<at::Tensor>& losses, Trainer& trainer) {
  detail::TrainerState& state = trainer.state();
  if (!state.scaler) {
    raise<ConfigError>(kScaleLoss,
                       "Loss scaler is not initialized, did you forget to call "
                       "gluon::init_trainer()?");
  }
  if (losses.empty()) raise<ConfigError>(kScaleLoss, "there are no losses");
  const amp::DisableCasts no_casts;
  std::vector<at::Tensor> scaled;
  for (const at::Tensor& loss : losses) scaled.push_back(scaled_by(loss, state.scaler->scale()));
  state.mark_scaled();
  return ScaledLoss(std::move(scaled));
}

void ScaledLoss::backward(bool retain_graph, bool create_graph) {
  std::vector<at::Tensor> ones;
  for (const at::Tensor& loss : losses_) ones.push_back(at::ones_like(loss));
  torch::autograd::backward(losses_, ones, retain_graph || create_graph, create_graph);
}

const at::Tensor& ScaledLoss::value() const {
  if (losses_.size() != 1) {
    raise(kScaleLoss, "value() of ", losses_.size(), " losses; values() has them");
  }
  return losses_.front();
}

void unscale(Trainer& trainer) {
  if (!trainer.state().scaler) {
    raise<ConfigError>("gluon::unscale",
                       "the trainer has no loss scale, did you forget to call "
                       "gluon::init_trainer()?");
  }
  trainer.state().unscale();
}

}  // namespace mezzo::gluon
