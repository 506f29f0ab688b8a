#include "core/raise.h"
#include "legacy/handle.h"

namespace mezzo::amp::legacy {

OptimWrapper::OptimWrapper(std::shared_ptr<detail::WrapperState> state)
    : state_(std::move(state)) {}

ScaledLoss OptimWrapper::scale_loss(const at::Tensor& loss) {
  if (state_->next_loss >= state_->num_loss) {
    raise("OptimWrapper::scale_loss", "loss ", state_->next_loss + 1,
          " of this step, but wrap_optimizer was told of ", state_->num_loss,
          "; give it the number of losses, or call step() between them");
  }
  auto scope = std::make_unique<mezzo::amp::detail::LossScope>(
      loss, std::vector{state_->optimizer}, ScaleLossOptions{.loss_id = state_->next_loss});
  if (!state_->optimizer->session().enabled()) return ScaledLoss(std::move(scope));
  scope->on_exit([state = state_](const std::exception_ptr& error) {
    if (!error) ++state->next_loss;
  });
  return ScaledLoss(std::move(scope));
}

void OptimWrapper::step() {
  // The handle casts what an optimizer computes as well; weights are none of its business.
  const DisableCasts no_casts;
  state_->next_loss = 0;
  state_->optimizer->steps().run();
}

void OptimWrapper::zero_grad(bool set_to_none) {
  state_->optimizer->zero_grad(set_to_none);
}

torch::optim::Optimizer& OptimWrapper::inner() {
  return state_->optimizer->inner();
}

}  // namespace mezzo::amp::legacy
