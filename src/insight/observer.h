// Watches one evaluation of a step through LibTorch's observers of operators and nodes.
#pragma once

#include <ATen/record_function.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/autograd_node.h"
#include "core/torch.h"
#include "insight/close_up.h"
#include "insight/trace.h"

namespace mezzo::insight {

/// Operators are observed as the program calls them, with what they were given, and again inside
/// nodes of the backward pass. Observers do not see what a node returns: a hook behind each node
/// of the loss's graph looks at it, so that arithmetic which no dispatcher sees is found too.
class Observer {
 public:
  explicit Observer(const ModulePaths& paths);
  /// Looks closely at one unit (by its ordinal) instead of looking for the first fault.
  Observer(const ModulePaths& paths, int ordinal, bool reads_fill);
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  /// While it lives, the observer watches the calling thread, and the threads of its backward
  /// passes; one at a time in a process.
  class Watching {
   public:
    explicit Watching(Observer& observer) : observer_(observer) { observer_.attach(); }
    ~Watching() { observer_.detach(); }
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;

   private:
    Observer& observer_;
  };

  /// Before the backward pass: hooks behind all nodes of this graph.
  void follow(const at::Tensor& loss);

  const Trace& trace() const noexcept { return trace_; }
  const std::optional<CloseUp>& close_up() const noexcept { return close_up_; }

 private:
  struct Frame;
  class NodeHook;
  friend struct ObserverCalls;

  void attach();
  void detach() noexcept;
  void begin(const at::RecordFunction& call);
  void end(const at::RecordFunction& call);
  void begin_operator(const at::RecordFunction& call);
  void begin_node(const at::RecordFunction& call);
  void node_returned(torch::autograd::Node& node, const std::vector<at::Tensor>& results);
  bool is_close(int unit) const { return unit == target_; }
  bool looks() const noexcept { return !close_up_; }
  int open_unit(Unit unit);

  std::mutex mutex_;
  Trace trace_;
  int target_ordinal_ = -1;
  int target_ = -2;  // the unit, once it began
  std::optional<CloseUp> close_up_;
  std::unordered_map<const torch::autograd::Node*, int> units_of_nodes_;
  std::unordered_map<const torch::autograd::Node*, int> fed_by_;  // who gave a node its gradient
  int last_node_ = -1;  // the unit of the node that ended last
  std::vector<std::pair<NodePointer, std::uintptr_t>> hooks_;
  at::CallbackHandle handle_ = 0;
};

}  // namespace mezzo::insight
