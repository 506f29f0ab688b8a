// Nodes of autograd. LibTorch 2.11 owns them by std::shared_ptr, later versions by
// c10::intrusive_ptr.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/torch.h"

namespace mezzo {

/// The owner of a node of any kind.
using NodePointer = decltype(torch::autograd::Edge::function);

/// A new node, owned as LibTorch owns its own.
template <class Node, class... Args>
auto make_node(Args&&... args) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<Node>(std::forward<Args>(args)...);
  } else {
    return c10::make_intrusive<Node>(std::forward<Args>(args)...);
  }
}

/// Names a node without owning it.
class WeakNode {
 public:
  WeakNode() = default;
  explicit WeakNode(const NodePointer& node) : node_(std::in_place, node) {}

  /// Null where there is none, or it is gone.
  NodePointer lock() const { return node_ ? node_->lock() : NodePointer(); }

 private:
  using Node = torch::autograd::Node;
  using Pointer = std::conditional_t<std::is_same_v<NodePointer, std::shared_ptr<Node>>,
                                     std::weak_ptr<Node>, c10::weak_intrusive_ptr<Node>>;
  std::optional<Pointer> node_;
};

/// Makes a node the accumulator of a leaf again, after a change of its type has cut it off.
template <class Pointer>
void set_accumulator(const at::Tensor& leaf, const Pointer& node) {
  using Node = typename Pointer::element_type;
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    torch::autograd::impl::set_grad_accumulator(leaf, std::weak_ptr<Node>(node));
  } else {
    torch::autograd::impl::set_grad_accumulator(leaf, c10::weak_intrusive_ptr<Node>(node));
  }
}

}  // namespace mezzo
