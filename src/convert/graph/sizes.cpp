#include "convert/graph/sizes.h"

#include <algorithm>

#include "convert/graph/shape_rules.h"
#include "convert/onnx/fields.h"

namespace mezzo::convert {
namespace {

constexpr std::int64_t kLargestSize = std::int64_t{1} << 30;

std::int64_t elements(const Dims& dims) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) {
    if (dim == 0) return 0;
    if (dim == kUnknownDim) continue;
    count = dim > kLargestSize / count ? kLargestSize : count * dim;
  }
  return count;
}

bool has_known(const Dims& dims) {
  return std::ranges::any_of(dims, [](std::int64_t dim) { return dim != kUnknownDim; });
}

Dims bounded(Dims dims) {
  for (std::int64_t& dim : dims) dim = std::clamp(dim, kUnknownDim, kLargestSize);
  return dims;
}

// The file's word counts; where it leaves a dimension open, the operator's does.
Dims joined(Dims told, const std::optional<Dims>& found) {
  if (!found || found->size() != told.size()) return told;
  for (std::size_t i = 0; i < told.size(); ++i) {
    if (told[i] == kUnknownDim) told[i] = (*found)[i];
  }
  return told;
}

class Estimate {
 public:
  explicit Estimate(const Graph& graph)
      : graph_(graph), shapes_(graph.values.size()), sizes_(graph.values.size(), 1) {}

  void run() { scope(0); }
  std::vector<std::int64_t> sizes() { return std::move(sizes_); }
  KnownShapes shapes() { return std::move(shapes_); }

 private:
  void scope(ScopeId id) {
    const Scope& scope = graph_.scope(id);
    for (const auto& [name, value] : scope.names) {
      if (graph_.value(value).producer == kNone && graph_.value(value).has_dims)
        set(value, std::nullopt, 1);
    }
    for (const NodeId node : scope.ordered) this->node(graph_.node(node));
  }

  void set(ValueId id, const std::optional<Dims>& found, std::int64_t otherwise) {
    const auto v = static_cast<std::size_t>(id);
    const Value& value = graph_.value(id);
    shapes_[v] = value.has_dims ? joined(bounded(value.dims), found) : found;
    const bool is_told = shapes_[v] && (shapes_[v]->empty() || has_known(*shapes_[v]));
    sizes_[v] = is_told ? elements(*shapes_[v]) : otherwise;
  }

  // Passes what is known of one value on to an equal one.
  void hand_on(ValueId from, ValueId to) {
    if (from == kNone || to == kNone) return;
    set(to, shapes_[static_cast<std::size_t>(from)], sizes_[static_cast<std::size_t>(from)]);
  }

  void node(const Node& node) {
    if (node.instance != kNone) {
      const Scope& function = graph_.scope(node.instance);
      inner(node.instance, node.inputs, 0, 0, function.inputs.size());
      for (std::size_t i = 0; i < std::min(node.outputs.size(), function.outputs.size()); ++i)
        hand_on(function.outputs[i], node.outputs[i]);
      return;
    }
    if (!node.bodies.empty()) return with_bodies(node);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      set(node.outputs[i], shape(node, i), largest_input(node));
    }
  }

  std::optional<Dims> shape(const Node& node, std::size_t output) const {
    if (const Message* tensor = graph_.constant(node.outputs[output]))
      return bounded(repeated_integers(*tensor, field::tensor::kDims));
    return output_shape(graph_, node, output, shapes_);
  }

  std::int64_t largest_input(const Node& node) const {
    std::int64_t largest = 1;
    for (const ValueId in : node.inputs) {
      if (in == kNone || !is_float_based(graph_.value(in).type)) continue;
      largest = std::max(largest, sizes_[static_cast<std::size_t>(in)]);
    }
    return largest;
  }

  // A scope whose inputs from `first` on are the node's from `from` on, and what is in it.
  void inner(ScopeId id, const std::vector<ValueId>& inputs, std::size_t from, std::size_t first,
             std::size_t count) {
    const Scope& scope = graph_.scope(id);
    for (std::size_t i = 0; i < count && first + i < scope.inputs.size(); ++i) {
      if (from + i < inputs.size()) hand_on(inputs[from + i], scope.inputs[first + i]);
    }
    this->scope(id);
  }

  // Carried values keep their shapes. How often a loop turns is not known, so that what it collects
  // counts as one turn's part.
  void with_bodies(const Node& node) {
    const bool loops = node.op == "Loop";
    for (const Body& body : node.bodies) {
      inner(body.scope, node.inputs, loops ? 2 : 0, loops ? 2 : 0, loops ? node.inputs.size() : 0);
      const Scope& scope = graph_.scope(body.scope);
      const std::size_t first = loops ? 1 : 0;
      for (std::size_t i = 0; i < node.outputs.size() && i + first < scope.outputs.size(); ++i)
        hand_on(scope.outputs[i + first], node.outputs[i]);
    }
  }

  const Graph& graph_;
  KnownShapes shapes_;
  std::vector<std::int64_t> sizes_;
};

}  // namespace

std::vector<std::int64_t> estimated_sizes(const Graph& graph) {
  Estimate estimate(graph);
  estimate.run();
  return estimate.sizes();
}

KnownShapes known_shapes(const Graph& graph) {
  Estimate estimate(graph);
  estimate.run();
  return estimate.shapes();
}

}  // namespace mezzo::convert
