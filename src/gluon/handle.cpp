#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "casting/scope.h"
#include "casting/weights.h"
#include "core/raise.h"
#include "gluon/mxnet_policy.h"
#include "gluon/trainer_state.h"
#include "mezzo/messages.h"

namespace mezzo::gluon {
namespace detail {

/// One handle.
struct HandleState {
  explicit HandleState(Policy given) : policy(std::move(given)) {}
  Policy policy;
  std::atomic<bool> closed = false;
  std::thread::id thread = std::this_thread::get_id();
};

namespace {

/// The common state of the process's handles while one lives.
struct LiveHandles {
  std::mutex mutex;
  int count = 0;
  InitOptions options;
  std::optional<Policy> policy;
};

LiveHandles& live_handles() {
  static LiveHandles* const handles = new LiveHandles;  // handles may outlive main
  return *handles;
}

/// The casts of a thread, open while one of its handles is.
struct ThreadCasts {
  std::vector<std::shared_ptr<HandleState>> handles;
  std::optional<casting::WeightKeeping> keeping;
  std::optional<casting::LastingScope> lasting;
  std::optional<casting::Scope> scope;

  void open(const std::shared_ptr<HandleState>& handle) {
    if (!scope) {
      keeping.emplace(true);
      lasting.emplace();
      scope.emplace(handle->policy);
    }
    handles.push_back(handle);
  }

  void end_closed() {
    std::erase_if(handles, [](const auto& handle) { return handle->closed.load(); });
    if (handles.empty()) end();
  }

  void end() {
    scope.reset();
    lasting.reset();
    keeping.reset();
  }

  ~ThreadCasts() { end(); }
};

thread_local ThreadCasts casts_here;

}  // namespace

bool has_live_handle() {
  const std::lock_guard lock(live_handles().mutex);
  return live_handles().count > 0;
}

}  // namespace detail

Handle init(const InitOptions& options) {
  detail::casts_here.end_closed();
  detail::LiveHandles& live = detail::live_handles();
  std::shared_ptr<detail::HandleState> state;
  bool is_first = false;
  {
    const std::lock_guard lock(live.mutex);
    if (live.count > 0 && !same_options(live.options, options)) {
      raise<ConfigError>("gluon::init",
                         "a handle with other settings is alive; destroy it first, or call init "
                         "with the same ones");
    }
    if (live.count == 0) {
      live.policy = policy_of(options);
      live.options = options;
    }
    state = std::make_shared<detail::HandleState>(*live.policy);
    detail::casts_here.open(state);
    is_first = live.count++ == 0;
  }
  Handle handle(std::move(state));
  if (is_first) send_message("Using AMP");
  return handle;
}

Handle::Handle(std::shared_ptr<detail::HandleState> state) : state_(std::move(state)) {}
Handle::Handle(Handle&&) noexcept = default;

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this == &other) return *this;
  close();
  state_ = std::move(other.state_);
  return *this;
}

Handle::~Handle() {
  close();
}

const Policy& Handle::policy() const {
  if (!state_) raise("gluon::Handle", "the handle was moved from");
  return state_->policy;
}

void Handle::close() noexcept {
  if (!state_) return;
  state_->closed = true;
  {
    const std::lock_guard lock(detail::live_handles().mutex);
    --detail::live_handles().count;
  }
  if (state_->thread == std::this_thread::get_id()) detail::casts_here.end_closed();
  state_.reset();
}

}  // namespace mezzo::gluon
