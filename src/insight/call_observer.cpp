#include "insight/call_observer.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "casting/hardware.h"
#include "core/raise.h"

namespace mezzo::insight {

namespace {

/// Callbacks of the observing thread go with its backward pass to the threads of devices, where
/// parts of a network may run again: they find the listener here.
std::atomic<CallListener*> the_listener = nullptr;
std::atomic<bool> in_forward = false;
std::mutex listening;

/// The calls that are open on this thread.
enum class OpenCall {
  kOperator,     // the listener heard of it
  kInner,        // inside an operator or a node
  kTransparent,  // no operator: what it calls counts as the program's
  kNode,         // of the backward pass, or the engine around it
  kForwardNode,  // one that runs a part of the network again
};

std::vector<OpenCall>& open_calls() {
  static thread_local std::vector<OpenCall> calls;
  return calls;
}

OpenCall kind_of(const at::RecordFunction& call) {
  const std::vector<OpenCall>& open = open_calls();
  const std::string_view name = call.name();
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    return name == "MezzoRecompute" ? OpenCall::kForwardNode : OpenCall::kNode;
  }
  if (name.starts_with("autograd::engine::")) return OpenCall::kNode;
  const bool of_program = open.empty() || open.back() == OpenCall::kTransparent ||
                          open.back() == OpenCall::kForwardNode;
  return of_program ? OpenCall::kTransparent : OpenCall::kInner;
}

std::unique_ptr<at::ObserverContext> call_begins(const at::RecordFunction& call) {
  OpenCall kind = kind_of(call);
  if (kind == OpenCall::kTransparent && the_listener.load() != nullptr) {
    const at::DisableRecordFunctionGuard silent;
    const std::lock_guard lock(listening);
    const std::vector<OpenCall>& open = open_calls();
    const bool again = std::ranges::find(open, OpenCall::kForwardNode) != open.end();
    const auto found = in_forward || again ? OperatorCall::of(call) : std::nullopt;
    if (found) {
      kind = OpenCall::kOperator;
      the_listener.load()->begins(*found, again);
    }
  }
  open_calls().push_back(kind);
  return nullptr;
}

void call_ended(const at::RecordFunction& call, at::ObserverContext*) {
  std::vector<OpenCall>& open = open_calls();
  if (open.empty()) return;
  const OpenCall kind = open.back();
  open.pop_back();
  if (kind != OpenCall::kOperator || the_listener.load() == nullptr) return;
  const at::DisableRecordFunctionGuard silent;
  const std::lock_guard lock(listening);
  the_listener.load()->ended(floating_tensors(call.outputs()));
}

}  // namespace

CallObserver::CallObserver(CallListener& listener) {
  CallListener* nobody = nullptr;
  if (!the_listener.compare_exchange_strong(nobody, &listener))
    raise("insight", "another step of this process is observed; one at a time");
  // The first scope of a low type measures how fast it is here: no operators of the program.
  for (const at::ScalarType low : {at::kHalf, at::kBFloat16}) static_cast<void>(emulated(low));
  in_forward = true;
  open_calls().clear();
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&call_begins, &call_ended)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

void CallObserver::forward_is_over() noexcept {
  in_forward = false;
}

CallObserver::~CallObserver() {
  at::removeCallback(handle_);
  the_listener = nullptr;
}

}  // namespace mezzo::insight
