#include "insight/call_list.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <cmath>
#include <memory>

#include "core/torch.h"
#include "insight/epsilon_trail.h"
#include "insight/trace.h"

namespace mezzo::insight {

namespace {

constexpr double kLargestHalf = 65504;

thread_local CallList* open_list = nullptr;
thread_local EpsilonTrail* open_trail = nullptr;
thread_local int depth = 0;  // of operators inside operators

std::unique_ptr<at::ObserverContext> note_call(const at::RecordFunction& call) {
  if (depth++ > 0 || open_list == nullptr) return nullptr;
  open_trail->begins(call.name(), call.inputs());
  for (const c10::IValue& value : call.inputs()) {
    if (value.isDouble() && std::isfinite(value.toDouble()) &&
        std::fabs(value.toDouble()) > kLargestHalf) {
      const std::string_view name = call.name();
      open_list->large_numbers.emplace(name.starts_with("aten::") ? name.substr(6) : name,
                                       value.toDouble());
    }
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const auto node = value.toTensor().grad_fn();
    if (node == nullptr) continue;
    const std::string name = node->name();
    // Operators of the library follow the casts by themselves.
    if (name.find("CppNode<") != std::string::npos && name.find("mezzo::") == std::string::npos)
      open_list->custom_functions.insert(name_of_node(name));
  }
  return nullptr;
}

void note_end(const at::RecordFunction& call, at::ObserverContext*) {
  if (--depth == 0 && open_trail != nullptr) open_trail->ended(call.outputs());
}

class OpenList {
 public:
  explicit OpenList(CallList& list)
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&note_call, &note_end)
                                               .needsInputs(true)
                                               .needsOutputs(true)
                                               .scopes({at::RecordScope::FUNCTION}))) {
    open_list = &list;
    open_trail = &trail_;
    depth = 0;
  }
  ~OpenList() {
    at::removeCallback(handle_);
    open_list->epsilons = trail_.uses();
    open_list = nullptr;
    open_trail = nullptr;
  }
  OpenList(const OpenList&) = delete;
  OpenList& operator=(const OpenList&) = delete;

 private:
  EpsilonTrail trail_;
  at::CallbackHandle handle_;
};

}  // namespace

CallList calls_of(const std::function<void()>& function) {
  CallList list;
  {
    const OpenList open(list);
    function();
  }
  return list;
}

}  // namespace mezzo::insight
