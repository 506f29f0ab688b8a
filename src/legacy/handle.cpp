#include "legacy/handle.h"

#include <utility>
#include <vector>

#include "amp/cast_listener.h"
#include "core/raise.h"

namespace mezzo::amp::legacy {
namespace {

/// The handles of a thread. One that is destroyed before those inside it waits for them: scopes end
/// in the reverse order of their opening.
struct Open {
  std::vector<std::shared_ptr<detail::HandleState>> handles;

  void end_closed() {
    while (!handles.empty() && handles.back()->closed) {
      handles.back()->end();
      handles.pop_back();
    }
  }

  ~Open() {
    for (; !handles.empty(); handles.pop_back()) {
      handles.back()->closed = true;
      handles.back()->end();
    }
  }
};

thread_local Open open_here;

}  // namespace

namespace detail {

HandleState::HandleState(const InitOptions& wanted) : options(wanted) {
  level.enabled = options.enabled;
  level.opt_level = "O1";
  level.loss_scale = options.loss_scale;
  level.policy = options.policy;
  if (level.policy && options.allow_banned) level.policy = level.policy->without_bans();
  level.verbosity = options.verbose ? 2 : 1;
  plan = mezzo::amp::detail::resolve(level);
  scale.scale = scaling::first_scale(plan.first_scale, plan.scale_rules);
}

void HandleState::open() {
  if (!options.enabled) {
    no_casts.emplace();
    return;
  }
  use.emplace(mezzo::amp::detail::InterfaceUse::kLegacyHandle);
  keeping.emplace(options.enable_caching);
  lasting.emplace();
  casts.emplace(*plan.policy, casting::Mode::kOperators,
                options.verbose ? &mezzo::amp::detail::cast_listener() : nullptr);
}

void HandleState::end() {
  casts.reset();
  lasting.reset();
  keeping.reset();
  no_casts.reset();
  use.reset();
}

std::shared_ptr<mezzo::amp::detail::Session> session_of(const HandleState& handle,
                                                        torch::optim::Optimizer& optimizer,
                                                        int num_losses) {
  Options options = handle.level;
  options.num_losses = num_losses;
  auto session = std::make_shared<mezzo::amp::detail::Session>(std::move(options), handle.plan);
  session->adopt({}, {{&optimizer, {}}});
  return session;
}

std::shared_ptr<mezzo::amp::detail::OptimizerState> only_optimizer(
    const std::shared_ptr<mezzo::amp::detail::Session>& session) {
  return {session, session->optimizers().front().get()};
}

}  // namespace detail

AmpHandle init(const InitOptions& options) {
  open_here.end_closed();
  auto state = std::make_shared<detail::HandleState>(options);
  state->open();
  open_here.handles.push_back(state);
  return AmpHandle(state);
}

AmpHandle::AmpHandle(std::shared_ptr<detail::HandleState> state) : state_(std::move(state)) {}
AmpHandle::AmpHandle(AmpHandle&&) noexcept = default;

AmpHandle& AmpHandle::operator=(AmpHandle&& other) noexcept {
  if (this == &other) return *this;
  close();
  state_ = std::move(other.state_);
  return *this;
}

AmpHandle::~AmpHandle() {
  close();
}

void AmpHandle::close() noexcept {
  if (!state_) return;
  const bool ended = state_->closed;  // with its thread
  state_->closed = true;
  const bool is_here = state_->thread == std::this_thread::get_id();
  state_.reset();
  // Scopes belong to their thread: on another one they wait for it.
  if (!ended && is_here) open_here.end_closed();
}

bool AmpHandle::is_active() const {
  return state_ && state_->options.enabled && Autocast::current().has_value();
}

OptimWrapper AmpHandle::wrap_optimizer(torch::optim::Optimizer& optimizer, int num_loss) {
  if (!state_) raise("wrap_optimizer", "the handle was moved from");
  if (num_loss < 1)
    raise<ConfigError>("wrap_optimizer", "num_loss is ", num_loss, "; expected 1 or more");
  auto wrapper = std::make_shared<detail::WrapperState>();
  wrapper->optimizer = detail::only_optimizer(detail::session_of(*state_, optimizer, num_loss));
  wrapper->num_loss = num_loss;
  state_->has_wrapped = true;
  return OptimWrapper(std::move(wrapper));
}

ScaledLoss AmpHandle::scale_loss(const at::Tensor& loss, torch::optim::Optimizer& optimizer) {
  if (!state_) raise("legacy::scale_loss", "the handle was moved from");
  if (state_->has_wrapped) {
    raise("legacy::scale_loss",
          "this handle has wrapped an optimizer; call scale_loss(loss) of what wrap_optimizer "
          "returned, for every optimizer");
  }
  if (state_->pending) std::rethrow_exception(std::exchange(state_->pending, nullptr));
  // Made anew each time: the optimizer may be gone before the handle is.
  const auto session = detail::session_of(*state_, optimizer, 1);
  const auto state = detail::only_optimizer(session);
  if (!state_->options.enabled) {
    return ScaledLoss(std::make_unique<mezzo::amp::detail::LossScope>(loss, std::vector{state},
                                                                      ScaleLossOptions{}));
  }
  session->scaler(0, "legacy::scale_loss").set_state(state_->scale);
  auto scope =
      std::make_unique<mezzo::amp::detail::LossScope>(loss, std::vector{state}, ScaleLossOptions{});
  scope->on_exit([handle = state_, session, state](const std::exception_ptr& error) {
    if (error) {
      handle->pending = error;
      return;
    }
    handle->scale = session->scaler(0, "legacy::scale_loss").state();
    state->steps().decide_without_step();
  });
  return ScaledLoss(std::move(scope));
}

bool AmpHandle::has_cache() const {
  return state_ && state_->options.enabled && state_->options.enable_caching;
}

void AmpHandle::clear_cache() {
  casting::drop_all_casts();
}

void AmpHandle::remove_cache(const at::Tensor& param) {
  if (param.defined()) casting::forget_weights(param);
}

bool AmpHandle::verbose() const {
  return state_ && state_->options.verbose;
}

}  // namespace mezzo::amp::legacy
