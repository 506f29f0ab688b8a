#include "mezzo/autocast.h"

#include <algorithm>

#include "casting/scope.h"
#include "casting/weights.h"
#include "core/scalar_type.h"
#include "operators/operators.h"
#include "policy/registry.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace mezzo::casting {

/// The content of a snapshot.
struct ScopeState {
  Policy policy;
  Mode mode;
  const CastListener* listener;
  bool keeps_weights;
  OpenedBy opened_by;
};

}  // namespace mezzo::casting

namespace mezzo::amp {

Autocast::Autocast(const Policy& policy) : scope_(std::make_unique<casting::Scope>(policy)) {}

Autocast::~Autocast() = default;

std::optional<Policy> Autocast::current() {
  const casting::Frame* frame = casting::current_frame();
  if (frame == nullptr || frame->policy == nullptr || !frame->rules.casts_operators())
    return std::nullopt;
  return *frame->source;
}

DisableCasts::DisableCasts() : disabled_(std::make_unique<casting::Disabled>()) {}

DisableCasts::~DisableCasts() = default;

void invalidate_casts(at::TensorList weights) {
  casting::invalidate_casts(weights);
}

Snapshot::Snapshot() {
  const casting::Frame* frame = casting::current_frame();
  if (frame == nullptr || frame->policy == nullptr) return;
  state_ = std::make_shared<const casting::ScopeState>(casting::ScopeState{
      *frame->source, frame->rules.mode, frame->listener, frame->keeps_weights, frame->opened_by});
}

Snapshot::Snapshot(const Snapshot&) = default;
Snapshot& Snapshot::operator=(const Snapshot&) = default;
Snapshot::~Snapshot() = default;

Snapshot::Guard::Guard(const Snapshot& snapshot) {
  if (snapshot.state_) {
    const casting::ScopeState& state = *snapshot.state_;
    keeping_ = std::make_unique<casting::WeightKeeping>(state.keeps_weights);
    scope_ =
        std::make_unique<casting::Scope>(state.policy, state.mode, state.listener, state.opened_by);
  } else {
    disabled_ = std::make_unique<casting::Disabled>();
  }
}

Snapshot::Guard::~Guard() = default;

}  // namespace mezzo::amp

namespace mezzo::amp::detail {

std::optional<at::ScalarType> active_low_type() {
  const casting::Frame* frame = casting::active_frame();
  if (frame == nullptr || !frame->rules.casts_operators()) return std::nullopt;
  return frame->rules.low;
}

void WidestType::look(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const at::ScalarType seen = tensor.scalar_type();
  if (!is_float_or_low(seen)) return;
  type = type && *type != seen ? at::kFloat : seen;
}

}  // namespace mezzo::amp::detail

namespace mezzo::amp {

namespace {

void register_function(const char* where, const std::string& op, CastClass kind) {
  const std::string qualified = op.find("::") == std::string::npos ? "aten::" + op : op;
  const std::size_t dot = qualified.find('.');
  const c10::OperatorName name(qualified.substr(0, dot),
                               dot == std::string::npos ? "" : qualified.substr(dot + 1));
  const bool in_the_table = !resolve(op).empty();
  if (!in_the_table && !c10::Dispatcher::singleton().findSchema(name)) {
    raise(where, "the dispatcher has no operator '", op,
          "'; load the library that defines it first, and name it with its namespace and overload, "
          "as in "
          "'my_ops::roi_align' or 'my_ops::pool.out'");
  }
  register_operator(in_the_table ? op : qualified, kind);
}

}  // namespace

void register_half_function(const std::string& op) {
  register_function("register_half_function", op, CastClass::kLow);
}

void register_float_function(const std::string& op) {
  register_function("register_float_function", op, CastClass::kFloat);
}

void register_promote_function(const std::string& op) {
  register_function("register_promote_function", op, CastClass::kPromote);
}

}  // namespace mezzo::amp
