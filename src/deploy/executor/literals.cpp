#include "deploy/executor/literals.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>

#include "core/torch.h"

namespace mezzo::deploy {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool is_one(const Value* value) {
  const auto number = torch::jit::toIValue(value);
  return number && number->isScalar() && number->toScalar().equal(1);
}

/// Does the executor take it apart?
bool is_taken_apart(const Node& node) {
  return node.kind() == c10::aten::addmm && node.inputs().size() == 5 && is_one(node.input(3)) &&
         is_one(node.input(4));
}

bool holds_tensors(const c10::Type& type) {
  if (type.isSubtypeOf(*c10::TensorType::get())) return true;
  const auto contained = type.containedTypes();
  return std::ranges::any_of(contained, [](const auto& one) { return holds_tensors(*one); });
}

/// Is it a tensor that the graph makes of nothing but numbers, so that its sizes are known before
/// the graph runs? Attributes are not.
bool has_known_sizes(const Node& node) {
  if (node.outputs().size() != 1 || !node.output()->type()->isSubtypeOf(*c10::TensorType::get()))
    return false;
  if (node.kind() == c10::prim::Constant) {
    const auto value = torch::jit::toIValue(node.output());
    return value && value->isTensor() && value->toTensor().defined() && value->toTensor().dim() > 0;
  }
  return node.kind().is_aten() && std::ranges::none_of(node.inputs(), [](const Value* input) {
           return holds_tensors(*input->type());
         });
}

template <typename Is>
bool any_node(const Block& block, const Is& is) {
  return std::ranges::any_of(block.nodes(), [&](const Node* node) {
    const auto inner = node->blocks();
    return is(*node) ||
           std::ranges::any_of(inner, [&](const Block* one) { return any_node(*one, is); });
  });
}

/// The transposed matrix, by whatever the graph has of it already.
Value* transposed(Graph& graph, Value* matrix) {
  Node* const maker = matrix->node();
  if (maker->kind() == c10::aten::t) return maker->input(0);
  const auto constant = torch::jit::toIValue(matrix);
  if (constant && constant->isTensor()) return graph.insertConstant(constant->toTensor().t());
  return graph.insert(c10::aten::t, {matrix});
}

void write_as_linear(Graph& graph, Node* addmm) {
  const torch::jit::WithInsertPoint here(addmm);
  Value* const weight = transposed(graph, addmm->input(2));
  Value* const linear = graph.insert(c10::aten::linear, {addmm->input(1), weight, addmm->input(0)});
  linear->setType(addmm->output()->type());
  for (Node* node : {weight->node(), linear->node()}) {
    if (node->scope()->isBlank()) node->setScope(addmm->scope());
  }
  linear->node()->setSourceRange(addmm->sourceRange());
  addmm->output()->replaceAllUsesWith(linear);
}

/// Copies of graphs share their constant lists, and what is written into one is read in the others.
void own_list(Node& node) {
  if (node.kind() != c10::prim::Constant ||
      node.output()->type()->kind() != c10::TypeKind::ListType)
    return;
  if (node.kindOf(c10::attr::value) != torch::jit::AttributeKind::ival) return;
  node.ival_(c10::attr::value, node.ival(c10::attr::value).deepcopy());
}

void keep_literals_in(Graph& graph, Block* block) {
  for (auto node = block->nodes().begin(); node != block->nodes().end(); ++node) {
    for (Block* inner : node->blocks()) keep_literals_in(graph, inner);
    own_list(**node);
    if (!is_taken_apart(**node)) continue;
    write_as_linear(graph, *node);
    node.destroyCurrent();
  }
}

/// May sizes of its tensors be spread?
bool is_followed(const torch::jit::Module& module) {
  return std::ranges::any_of(module.get_methods(), [](const torch::jit::Method& method) {
    const std::shared_ptr<Graph> whole = method.graph()->copy();
    torch::jit::Inline(*whole);
    return any_node(*whole->block(), is_taken_apart) && any_node(*whole->block(), has_known_sizes);
  });
}

}  // namespace

void keep_literals(Graph& graph) {
  keep_literals_in(graph, graph.block());
  torch::jit::EliminateDeadCode(graph.block());
}

torch::jit::Module with_literals_kept(const torch::jit::Module& module) {
  if (!is_followed(module)) return module;
  torch::jit::Module kept = module.clone(/*inplace=*/true);
  for (const torch::jit::Method& method : kept.get_methods()) {
    torch::jit::Inline(*method.graph());
    keep_literals(*method.graph());
  }
  return kept;
}

}  // namespace mezzo::deploy
