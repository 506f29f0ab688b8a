#include "insight/observer.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <unordered_set>
#include <utility>

#include "insight/unobserved.h"

namespace mezzo::insight {

using torch::autograd::Node;

namespace {

// The callbacks of LibTorch are plain functions.
std::atomic<Observer*> the_observer = nullptr;

template <typename Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) visit(tensor);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) each_tensor(element, visit);
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) each_tensor(element, visit);
  }
}

template <typename Values>
std::vector<at::Tensor> tensors_in(const Values& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values)
    each_tensor(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

std::vector<double> scalars_in(at::ArrayRef<const c10::IValue> values) {
  std::vector<double> scalars;
  for (const c10::IValue& value : values) {
    if (value.isDouble()) scalars.push_back(value.toDouble());
    if (value.isInt()) scalars.push_back(static_cast<double>(value.toInt()));
  }
  return scalars;
}

bool changes_inputs(const at::RecordFunction& call) {
  const std::optional<c10::FunctionSchema> schema = call.operator_schema();
  return schema && schema->is_mutable();
}

std::string operator_name(const char* name) {
  const std::string_view text = name;
  return std::string(text.starts_with("aten::") ? text.substr(6) : text);
}

}  // namespace

/// A call that is not over yet.
struct Observer::Frame {
  // The engine has a call of its own around each node and what it does beside it.
  enum class Kind { kOperator, kNode, kInner, kEngine };
  Kind kind = Kind::kOperator;
  int unit = -1;
  NodeOrder place;                // of the next node when it began
  bool runs_forward = false;      // a node that runs a part of the network again
  bool directly_in_node = false;  // of an inner call

  static std::vector<Frame>& stack() {
    static thread_local std::vector<Frame> frames;
    return frames;
  }
};

class Observer::NodeHook final : public torch::autograd::FunctionPostHook {
 public:
  NodeHook(Observer& observer, Node& node) : observer_(observer), node_(node) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& results,
                                            const torch::autograd::variable_list&) override {
    observer_.node_returned(node_, results);
    return results;
  }

 private:
  Observer& observer_;
  Node& node_;
};

struct ObserverCalls {
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
    if (Observer* observer = the_observer.load()) observer->begin(call);
    return nullptr;
  }
  static void end(const at::RecordFunction& call, at::ObserverContext*) {
    if (Observer* observer = the_observer.load()) observer->end(call);
  }
};

Observer::Observer(const ModulePaths& paths) : trace_(paths) {}

Observer::Observer(const ModulePaths& paths, int ordinal, bool reads_fill)
    : trace_(paths), target_ordinal_(ordinal) {
  close_up_.emplace(paths, reads_fill);
}

void Observer::attach() {
  Observer* nobody = nullptr;
  if (!the_observer.compare_exchange_strong(nobody, this)) {
    raise("explain_overflow", "another thread of this process explains a step; one at a time");
  }
  Frame::stack().clear();
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&ObserverCalls::begin, &ObserverCalls::end)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

void Observer::detach() noexcept {
  at::removeCallback(handle_);
  for (auto& [node, key] : hooks_) node->del_post_hook(key);
  hooks_.clear();
  the_observer.store(nullptr);
}

void Observer::follow(const at::Tensor& loss) {
  if (loss.grad_fn() == nullptr) return;
  std::unordered_set<const Node*> seen;
  std::vector<NodePointer> open{loss.grad_fn()};
  while (!open.empty()) {
    const NodePointer node = std::move(open.back());
    open.pop_back();
    if (!seen.insert(node.get()).second) continue;
    for (const auto& edge : node->next_edges()) {
      if (edge.function != nullptr) open.push_back(edge.function);
    }
    hooks_.emplace_back(node, node->add_post_hook(std::make_unique<NodeHook>(*this, *node)));
  }
}

int Observer::open_unit(Unit unit) {
  unit.ordinal = 0;  // it is observed; the trace counts
  const int index = trace_.add(std::move(unit));
  if (trace_.unit(index).ordinal == target_ordinal_) target_ = index;
  return index;
}

void Observer::begin(const at::RecordFunction& call) {
  const Unobserved unobserved;
  const std::lock_guard lock(mutex_);
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    begin_node(call);
  } else {
    begin_operator(call);
  }
}

void Observer::begin_operator(const at::RecordFunction& call) {
  std::vector<Frame>& frames = Frame::stack();
  const Frame* parent = frames.empty() ? nullptr : &frames.back();
  Frame frame;
  if (std::string_view(call.name()).starts_with("autograd::engine::")) {
    frame.kind = Frame::Kind::kEngine;
    frames.push_back(frame);
    return;
  }
  frame.place = NodeOrder::next_here();
  const bool is_outermost = parent == nullptr || parent->kind == Frame::Kind::kEngine;
  const bool is_inner =
      !is_outermost && (parent->kind != Frame::Kind::kNode || !parent->runs_forward);
  if (is_inner) {
    frame.kind = Frame::Kind::kInner;
    frame.unit = parent->unit;
    frame.directly_in_node = parent->kind == Frame::Kind::kNode;
    const bool reads = frame.directly_in_node && looks();
    if (reads) {
      for (const at::Tensor& tensor : tensors_in(call.inputs()))
        trace_.read(frame.unit, tensor, true);
    } else if (is_close(frame.unit)) {
      close_up_->begin_inner(operator_name(call.name()), tensors_in(call.inputs()),
                             scalars_in(call.inputs()), changes_inputs(call));
    }
    frames.push_back(frame);
    return;
  }
  Unit unit;
  unit.name = operator_name(call.name());
  // The engine adds gradients up and casts them between the nodes.
  const auto node = is_outermost ? torch::autograd::get_current_node() : nullptr;
  if (node != nullptr) {
    unit.backward = true;
    const auto found = units_of_nodes_.find(node.get());
    if (found != units_of_nodes_.end()) {
      const Unit& of_node = trace_.unit(found->second);
      unit.forward = of_node.forward;
      unit.near = of_node.forward >= 0 ? -1 : found->second;
    }
  }
  const std::vector<double> scalars = scalars_in(call.inputs());
  unit.gives_infinity =
      std::ranges::any_of(scalars, [](double value) { return std::isinf(value); });
  unit.gives_nan = std::ranges::any_of(scalars, [](double value) { return std::isnan(value); });
  unit.reads_fill = unit.gives_infinity;
  const bool is_forward = !unit.backward;
  frame.unit = open_unit(std::move(unit));
  if (is_forward) trace_.note_start(frame.unit, frame.place);
  const std::vector<at::Tensor> inputs = tensors_in(call.inputs());
  for (const at::Tensor& tensor : inputs) trace_.read(frame.unit, tensor, looks());
  if (is_close(frame.unit)) close_up_->begin(inputs, scalars, operator_name(call.name()), false);
  frames.push_back(frame);
}

void Observer::begin_node(const at::RecordFunction& call) {
  const auto node = torch::autograd::get_current_node();
  Unit unit;
  unit.backward = true;
  unit.name = name_of_node(call.name());
  const NodeOrder place{call.forwardThreadId(), static_cast<std::uint64_t>(call.seqNr())};
  unit.forward = trace_.forward_of(place);
  if (unit.forward < 0 && node != nullptr) {
    const auto feeder = fed_by_.find(node.get());
    if (place.number == UINT64_MAX && feeder != fed_by_.end()) {
      // Nodes that live on between iterations belong to those that feed them.
      unit.forward = trace_.unit(feeder->second).forward;
      unit.near = unit.forward >= 0 ? -1 : feeder->second;
    } else {
      unit.near = trace_.first_after(place);
    }
  }
  Frame frame;
  frame.kind = Frame::Kind::kNode;
  frame.place = NodeOrder::next_here();
  frame.runs_forward = std::string_view(call.name()) == "MezzoRecompute";
  frame.unit = open_unit(std::move(unit));
  int feeder = last_node_;
  if (node != nullptr) {
    units_of_nodes_[node.get()] = frame.unit;
    const auto known = fed_by_.find(node.get());
    if (known != fed_by_.end()) feeder = known->second;
  }
  const std::vector<at::Tensor> inputs = tensors_in(call.inputs());
  for (const at::Tensor& tensor : inputs) trace_.read(frame.unit, tensor, looks(), feeder);
  if (is_close(frame.unit)) close_up_->begin(inputs, {}, trace_.name_of(frame.unit), true);
  Frame::stack().push_back(frame);
}

void Observer::end(const at::RecordFunction& call) {
  const Unobserved unobserved;
  const std::lock_guard lock(mutex_);
  std::vector<Frame>& frames = Frame::stack();
  if (frames.empty()) return;
  const Frame frame = frames.back();
  frames.pop_back();
  if (frame.kind == Frame::Kind::kEngine) return;
  if (frame.kind != Frame::Kind::kInner)
    trace_.note_nodes(frame.unit, frame.place, NodeOrder::next_here());
  if (frame.kind == Frame::Kind::kNode) {
    last_node_ = frame.unit;
    return;
  }
  const bool is_operator = frame.kind == Frame::Kind::kOperator;
  const bool writes = is_operator || (frame.directly_in_node && looks());
  if (!writes && !is_close(frame.unit)) return;
  const std::vector<at::Tensor> results = tensors_in(call.outputs());
  if (writes) {
    const bool looks_at = looks() && !gives_raw_memory(operator_name(call.name()));
    for (const at::Tensor& tensor : results) trace_.wrote(frame.unit, tensor, looks_at);
  }
  if (!is_close(frame.unit)) return;
  if (is_operator) {
    close_up_->end(results);
  } else {
    close_up_->end_inner(results);
  }
}

void Observer::node_returned(Node& node, const std::vector<at::Tensor>& results) {
  const Unobserved unobserved;
  const std::lock_guard lock(mutex_);
  const auto found = units_of_nodes_.find(&node);
  if (found == units_of_nodes_.end()) return;
  const int unit = found->second;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    if (i < node.num_outputs()) {
      const auto& edge = node.next_edge(i);
      if (edge.function != nullptr) fed_by_[edge.function.get()] = unit;
    }
    if (looks() && !finiteness_of(results[i]).finite()) trace_.wrote(unit, results[i], true);
  }
  if (is_close(unit)) close_up_->end(results);
}

}  // namespace mezzo::insight
