#include "convert/prepare/opset_facts.h"

#include <algorithm>

#include "convert/graph/sizes.h"

namespace mezzo::convert {
namespace {

// Later ones changed nothing that needs to know more than the node itself.
constexpr std::int64_t kFirstWithout = 10;

bool is_old(const Node& node) {
  return node.domain.empty() && node.opset < kFirstWithout;
}

template <typename T>
void keep_equal(std::vector<std::optional<T>>& these, const std::vector<std::optional<T>>& others) {
  for (std::size_t i = 0; i < these.size(); ++i) {
    if (these[i] != others[i]) these[i].reset();
  }
}

std::optional<std::vector<double>> few_numbers(const Graph& graph, ValueId id) {
  constexpr std::uint64_t kMost = 64;
  const Message* tensor = graph.constant(id);
  if (tensor == nullptr) return std::nullopt;
  std::vector<double> values = small_values(read_tensor(graph.document(), *tensor), kMost);
  return values.empty() ? std::nullopt : std::optional(std::move(values));
}

}  // namespace

NodeFacts::NodeFacts(const Graph& graph) {
  if (std::ranges::none_of(graph.nodes, is_old)) return;
  const KnownShapes shapes = known_shapes(graph);
  for (const Node& node : graph.nodes) {
    if (!is_old(node)) continue;
    Known known;
    for (const ValueId in : node.inputs) {
      known.shapes.push_back(in == kNone ? std::nullopt : shapes[static_cast<std::size_t>(in)]);
      known.numbers.push_back(in == kNone ? std::nullopt : few_numbers(graph, in));
    }
    for (const ValueId out : node.outputs) {
      const bool is_tensor = out != kNone && graph.value(out).type.is_plain_tensor();
      known.elements.push_back(is_tensor ? std::optional(graph.value(out).type.element)
                                         : std::nullopt);
      known.reads.push_back(out != kNone && !graph.value(out).uses.empty());
    }
    const auto [found, is_new] = known_.try_emplace(node.message, known);
    if (!is_new) agree(found->second, known);
  }
}

void NodeFacts::agree(Known& with, const Known& other) {
  keep_equal(with.shapes, other.shapes);
  keep_equal(with.numbers, other.numbers);
  keep_equal(with.elements, other.elements);
  for (std::size_t i = 0; i < with.reads.size(); ++i)
    with.reads[i] = with.reads[i] || other.reads[i];
}

std::optional<Dims> NodeFacts::shape(const Message& node, std::size_t input) const {
  const auto found = known_.find(&node);
  if (found == known_.end() || input >= found->second.shapes.size()) return std::nullopt;
  return found->second.shapes[input];
}

std::optional<std::vector<double>> NodeFacts::numbers(const Message& node,
                                                      std::size_t input) const {
  const auto found = known_.find(&node);
  if (found == known_.end() || input >= found->second.numbers.size()) return std::nullopt;
  return found->second.numbers[input];
}

std::optional<Element> NodeFacts::element(const Message& node, std::size_t output) const {
  const auto found = known_.find(&node);
  if (found == known_.end() || output >= found->second.elements.size()) return std::nullopt;
  return found->second.elements[output];
}

bool NodeFacts::is_read(const Message& node, std::size_t output) const {
  const auto found = known_.find(&node);
  return found == known_.end() || output >= found->second.reads.size() ||
         found->second.reads[output];
}

}  // namespace mezzo::convert
