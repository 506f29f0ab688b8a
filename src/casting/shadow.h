// One persistent low-precision copy of one weight: its values, the aliases of them that autograd
// links to the weight by a node, and the rule that decides whether they still hold.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/function.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "casting/shadow_gate.h"
#include "casting/stream_order.h"
#include "core/autograd_node.h"
#include "core/torch.h"

namespace mezzo::casting {

/// Which copy of a weight: its low type, stored as such or as float that holds rounded values
/// (emulation).
struct ShadowKind {
  at::ScalarType low;
  bool in_float;
  bool operator==(const ShadowKind&) const = default;
};

/// Ordinary tensors without history, whatever mode the caller is in: a copy made in inference mode
/// could never be refreshed.
struct Unrecorded {
  c10::InferenceMode ordinary{false};
  at::NoGradGuard no_grad;
};

/// Takes the gradient of the copy back to the weight: undoes the transposition, rounds it to the
/// low type as a computation in that type would have, and gives it the weight's type. Gradients of
/// many uses of a float weight are added up in float. Closes the copy's gate. Saves nothing, so
/// that one node serves every use and iteration.
class ShadowNode final : public torch::autograd::Node {
 public:
  struct Way {
    at::ScalarType leaf;  // the type that the gradient leaves with
    ShadowKind kind;      // of the copy: its gradient is rounded to the low type
    bool transposed;
  };

  /// @param edge  where the gradient goes: the weight's accumulator, or the history of a view of
  /// the weight
  ShadowNode(torch::autograd::Edge edge, Way way, std::shared_ptr<ShadowGate> gate);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return "MezzoWeightCast"; }

 private:
  Way way_;
  std::shared_ptr<ShadowGate> gate_;
};

/// The edge to a new node, which takes the gradient of `copy` back to a weight or its view.
torch::autograd::Edge shadow_edge(const at::Tensor& weight, ShadowNode::Way way,
                                  std::shared_ptr<ShadowGate> gate, const at::Tensor& copy);

/// The registry's, under its mutex. `here` is the place where the caller queues work on the
/// weight's device.
class Shadow {
 public:
  using Use = ShadowGate::Use;

  explicit Shadow(ShadowKind kind) : kind_(kind) {}

  ShadowKind kind() const { return kind_; }

  /// How operators come to the copy without the registry. It outlives the shadow, closed.
  const std::shared_ptr<ShadowGate>& gate() const { return gate_; }

  /// Does the copy hold the weight's value here, as far as can be known?
  bool fresh(const at::Tensor& weight, const QueuePlace& here) const;

  /// Fills the copy anew: in place where the weight is known to have changed, so that graphs which
  /// saved the old values fail as they would without casts; else in new memory, so that they stay
  /// valid.
  void cast_again(const at::Tensor& weight, const QueuePlace& here);

  /// The copy of a fresh shadow for the weight or, if `view` is not null, for that view of it.
  at::Tensor use(const at::Tensor& weight, const at::Tensor* view, bool with_history,
                 const QueuePlace& here);

  /// The next use casts again.
  void invalidate();
  /// As above, if nobody knows whether the weight has changed.
  void doubt() { gate_->close(); }

  /// Operators ask the registry, until it has looked at the weight and resumes.
  void pause();
  void resume(const at::Tensor& weight);

  /// Has a gradient ever flowed through a copy?
  bool saw_gradient() const { return gate_->saw_gradient(); }

  /// Between these two the caller writes the weight's new values into base(), or has fill() do it.
  /// Nothing is begun, and the copy invalidated, if there is none, if nobody used it since the last
  /// time, or if a graph is captured. `end` may be null where there are no streams.
  bool begin_refill(const QueuePlace& here);
  void end_refill(const at::Tensor& weight, std::shared_ptr<FillEnd> end);
  const at::Tensor& base() const { return base_; }
  void fill(const at::Tensor& weight);
  bool was_used() const { return gate_->was_used(); }

  /// Can base() be written in one pass with the weight, the same elements in the same places, each
  /// rounded once? And is it, as far as versions show, the weight's copy now?
  bool can_be_written_with(const at::Tensor& weight) const;

  /// Begun with this base(), and nobody ended it, cast or invalidated since.
  bool is_refilling(const at::Tensor& base) const {
    return !gate_->is_open() && !invalid_ && base_.is_same(base);
  }

  /// Frees all values; the shadow stays unusable.
  void retire();

  /// Is there a node of ours that lives by itself? It holds the weight's accumulator, and that
  /// holds the weight.
  bool holds_weight() const { return edges_[0].is_valid() || edges_[1].is_valid(); }

  /// Was there ever a node that leads graphs to the weight?
  bool led_to_weight() const { return led_to_weight_; }

 private:
  void open(const at::Tensor& weight);
  at::Tensor whole(const at::Tensor& weight, Use use, const QueuePlace& here);
  torch::autograd::Edge edge_to(const at::Tensor& weight, Use use, const at::Tensor& copy,
                                const QueuePlace& here);
  void write_at(const QueuePlace& here);
  void mark_end(const QueuePlace& here);
  at::Tensor viewed(const at::Tensor& weight, const at::Tensor& view, bool with_history) const;

  const ShadowKind kind_;
  at::Tensor base_;
  std::uint64_t capture_ = 0;     // of a graph, which fills base_; 0: none
  std::shared_ptr<FillEnd> end_;  // of what fills it; null without streams
  MemoryUsers users_;             // of its memory
  bool paused_ = false;
  bool invalid_ = false;  // doubtful, whatever the weight's version says
  // To the nodes: straight, transposed. Without streams they are kept for all graphs to come.
  std::array<torch::autograd::Edge, 2> edges_;
  // With streams they belong to their graphs, as all of LibTorch's do: a node, and the accumulator
  // that it holds, run on the stream on which they were made.
  std::array<WeakNode, 2> nodes_;
  bool led_to_weight_ = false;
  const std::shared_ptr<ShadowGate> gate_ = std::make_shared<ShadowGate>();
};

}  // namespace mezzo::casting
