// The record of an observed step: its operators and the nodes of its backward pass, which of them
// read what, and where values stopped being finite.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/torch.h"
#include "insight/module_paths.h"
#include "insight/tensor_range.h"

namespace mezzo::insight {

/// An operator that the program called, or a node of the backward pass.
struct Unit {
  std::string name;  // the operator's, or what the node's class is called
  bool backward = false;
  int ordinal = -1;  // its place among those that were observed; -1: inferred from its result
  int forward = -1;  // of a node: the unit of its forward operator
  int near = -1;     // a unit beside it in the graph, where it has no operator of its own
  bool reads_fill = false;                  // an infinity that the program passed as a fill value
  bool gives_infinity = false;              // it was among the operator's own numbers
  bool gives_nan = false;                   // so was a NaN
  std::vector<int> reads;                   // forward: the units that wrote its inputs
  std::vector<int> fed_by;                  // of a node: those that wrote its gradients
  std::vector<const NamedTensor*> weights;  // parameters and buffers among its inputs
  std::vector<int> causes;                  // units that made inputs that are not finite
  std::vector<int> leaves;                  // the same for inputs that no unit made
  std::vector<int> fills;                   // units whose fill values came in
  std::vector<int> fill_leaves;             // positive infinities that the data were filled with
};

/// An input that is not finite and that no operator made.
struct BadLeaf {
  const NamedTensor* weight = nullptr;  // null: data
  TensorRange range;
  int reader = -1;  // the first unit that read it
};

/// A place in the order in which a thread made autograd's nodes. Each thread counts its own, and
/// what is computed again on a device's thread of the backward pass is counted there.
struct NodeOrder {
  std::uint64_t thread = 0;
  std::uint64_t number = 0;

  /// The place of the next node of this thread.
  static NodeOrder next_here();
  static NodeOrder of(const torch::autograd::Node&);
  auto operator<=>(const NodeOrder&) const = default;  // NOLINT(modernize-use-nullptr)
};

class Trace {
 public:
  explicit Trace(const ModulePaths& paths) : paths_(paths) {}

  // ---- as things happen
  int add(Unit unit);
  /// A unit's input. Looks at its values where `looks`. `feeder` is to blame for values that are
  /// not finite where nobody is known to have made them; -1: it is data.
  void read(int unit, const at::Tensor& tensor, bool looks, int feeder = -1);
  /// A unit's result.
  void wrote(int unit, const at::Tensor& tensor, bool looks);
  /// A unit began when the next node would have got this place.
  void note_start(int unit, const NodeOrder& place) { starts_.try_emplace(place, unit); }
  /// Nodes of autograd from one place to another (the last one excluded) of a thread came from a
  /// unit.
  void note_nodes(int unit, const NodeOrder& begin, const NodeOrder& end);

  /// The forward unit that a node came from; -1: none.
  int forward_of(const NodeOrder& node) const;
  /// The first unit that began after such a node was made; -1: none.
  int first_after(const NodeOrder& node) const;

  // ---- afterwards
  const Unit& unit(int index) const { return units_[static_cast<std::size_t>(index)]; }
  Unit& unit(int index) { return units_[static_cast<std::size_t>(index)]; }
  int size() const noexcept { return static_cast<int>(units_.size()); }

  /// How values that are not finite came into these tensors: the first unit that made some of
  /// finite ones, and the leaves that were not finite.
  struct Origin {
    int unit = -1;
    std::vector<const BadLeaf*> leaves;
    /// Were the leaves read before the unit went wrong?
    bool leaves_first() const;
  };
  /// `results`: of the forward pass, the loss, say. Where they are not finite, their fault came
  /// before that of the gradients, and an infinity that the data were filled with is one.
  Origin origin_of(const std::vector<at::Tensor>& gradients,
                   const std::vector<at::Tensor>& results = {}) const;

  /// "layer3.conv2", "between layer3.conv2 and layer3.bn2", ...
  std::string module_of(int unit) const;
  /// The modules that such a name is made of, the nearest one before it first.
  std::vector<std::string> modules_around(int unit) const;
  /// The name of the operator: of a node that of the forward operator whose derivative it is.
  const std::string& name_of(int unit) const;
  /// The forward unit that stands for it: its own, or that of the forward operator. The gradient of
  /// a cast belongs to the operator whose result was cast.
  int anchor_of(int unit) const;
  /// Parameters and buffers that its inputs were computed from, and its own.
  std::vector<const NamedTensor*> weights_before(int unit) const;

 private:
  /// The facts about some memory.
  struct Memory {
    c10::weak_intrusive_ptr<c10::StorageImpl> keeps;  // so that its address is not used again
    int writer = -1;
    int spoiler = -1;  // what made values that are not finite, as far as they are there now
    bool is_fill = false;
    bool partly_filled = false;  // an infinity was written into a part of it
  };
  Memory& memory(const at::Tensor& tensor);
  void read_spoiled(int unit, const at::Tensor& tensor, Finiteness values, int feeder);
  void read_fill(int unit, const at::Tensor& tensor, const Memory& place);
  int add_leaf(int unit, const NamedTensor* weight, const at::Tensor& tensor);
  bool takes_from_numbers(const Unit& writer, const at::Tensor& tensor) const;
  void walk_back(const std::vector<at::Tensor>& tensors, bool over_fills, Origin& into) const;
  int infer_unit(const at::Tensor& tensor);
  int maker_of(const at::Tensor& tensor) const;
  std::string nearest(int unit, bool before) const;

  const ModulePaths& paths_;
  std::vector<Unit> units_;
  std::vector<BadLeaf> leaves_;
  std::unordered_map<const c10::StorageImpl*, Memory> memories_;
  std::multimap<NodeOrder, std::pair<std::uint64_t, int>> nodes_;  // begin: end, unit
  std::map<NodeOrder, int> starts_;  // the first unit that began at each place
  int observed_ = 0;
};

/// The class of an autograd node as a name of an operator: "MyFunction", "exp".
std::string name_of_node(std::string node);

}  // namespace mezzo::insight
