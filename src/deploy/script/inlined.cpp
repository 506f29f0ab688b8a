#include "deploy/script/inlined.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <map>
#include <vector>

namespace mezzo::deploy::script {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::ScopePtr;
using torch::jit::Value;

ScopePtr scope_of_module(const std::string& path) {
  return c10::make_intrusive<torch::jit::Scope>(c10::make_intrusive<torch::jit::Scope>(),
                                                c10::Symbol::scope(path));
}

void set_scope(Node* node, const ScopePtr& scope) {
  node->setScope(scope);
  for (Block* block : node->blocks()) {
    for (Node* inner : block->nodes()) set_scope(inner, scope);
  }
}

void inline_node(Node* node);

void inline_between(Node* first, const Node* behind) {
  while (first != behind) {
    Node* const next = first->next();  // inlining removes the call and puts its body before `next`
    inline_node(first);
    first = next;
  }
}

void inline_node(Node* node) {
  for (Block* block : node->blocks()) inline_between(block->nodes().front(), block->return_node());
  const bool is_method = node->kind() == c10::prim::CallMethod;
  if (!is_method && node->kind() != c10::prim::CallFunction) return;
  torch::jit::GraphFunction* const function = torch::jit::tryToGraphFunction(node);
  if (function == nullptr) return;
  ScopePtr scope = node->scope();
  if (is_method) {
    if (const auto path = module_path_of(node->input(0))) scope = scope_of_module(*path);
  } else {
    node->removeInput(0);  // the function itself
  }
  Node* const before = node->prev();
  Node* const behind = node->next();
  torch::jit::inlineCallTo(node, function, function->graph().get());
  for (Node* added = before->next(); added != behind; added = added->next())
    set_scope(added, scope);
  inline_between(before->next(), behind);
}

bool is_setting(const c10::IValue& value) {
  return value.isInt() || value.isDouble() || value.isBool() || value.isString() || value.isNone();
}

/// The common path of the modules whose tensors a node reads; nothing if it reads none.
std::optional<std::string> place_of_reads(const Node& node, const torch::jit::Module& module) {
  std::optional<std::string> place;
  for (const Value* input : node.inputs()) {
    const auto attribute = attribute_of(input, module);
    if (!attribute || !attribute->value().isTensor()) continue;
    const std::size_t dot = attribute->path.rfind('.');
    const std::string holder = dot == std::string::npos ? "" : attribute->path.substr(0, dot);
    place = place ? common_path(*place, holder) : holder;
  }
  return place;
}

}  // namespace

void inline_calls(Graph& graph) {
  const ScopePtr outermost = scope_of_module("");
  for (Node* node : graph.nodes()) set_scope(node, outermost);
  inline_between(graph.block()->nodes().front(), graph.return_node());
  torch::jit::EliminateDeadCode(graph.block());
}

std::string module_of(const Node& node) {
  const ScopePtr scope = const_cast<Node&>(node).scope();
  if (scope == nullptr || scope->isBlank()) return {};
  return scope->name().toUnqualString();
}

std::set<std::string> written_attributes(Graph& graph) {
  std::set<std::string> paths;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() != c10::prim::SetAttr) return;
    const auto path = module_path_of(node->input(0));
    if (path) paths.insert((path->empty() ? "" : *path + ".") + node->s(c10::attr::name));
  });
  return paths;
}

void fold_settings(std::shared_ptr<Graph> graph, const torch::jit::Module& module,
                   const std::set<std::string>& written) {
  for_each_node(graph->block(), [&](Node* node) {
    if (node->kind() != c10::prim::GetAttr) return;
    const auto place = attribute_of(node->output(), module);
    if (!place || written.contains(place->path) || !is_setting(place->value())) return;
    const torch::jit::WithInsertPoint here(node);
    Value* const constant = graph->insertConstant(place->value());
    constant->node()->setScope(node->scope());
    node->output()->replaceAllUsesWith(constant);
    node->destroy();
  });
  torch::jit::ConstantPropagationImmutableTypes(graph);
  torch::jit::EliminateDeadCode(graph);
}

Value* read_attribute(Graph& graph, const std::string& path, Node* where) {
  const torch::jit::WithInsertPoint here(where);
  Value* value = graph.inputs().at(0);
  for (std::string rest = path; !rest.empty();) {
    const std::size_t end = std::min(rest.find('.'), rest.size());
    value = graph.insertGetAttr(value, rest.substr(0, end));
    rest = end == rest.size() ? "" : rest.substr(end + 1);
  }
  return value;
}

void unify_reads(Graph& graph, const torch::jit::Module& module,
                 const std::set<std::string>& written) {
  std::map<std::string, std::vector<Value*>> reads;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() != c10::prim::GetAttr) return;
    const auto place = attribute_of(node->output(), module);
    if (place && !place->value().isObject() && !written.contains(place->path))
      reads[place->path].push_back(node->output());
  });
  Node* const begin = *graph.block()->nodes().begin();
  for (const auto& [path, values] : reads) {
    if (values.size() == 1) continue;
    Value* const one = read_attribute(graph, path, begin);
    one->setType(values.front()->type());
    for (Value* value : values) value->replaceAllUsesWith(one);
  }
  torch::jit::EliminateDeadCode(graph.block());
}

void place_by_parameters(Graph& graph, const torch::jit::Module& module) {
  std::vector<Node*> nodes;
  bool has_calls = false;
  for_each_node(graph.block(), [&](Node* node) {
    has_calls = has_calls || !module_of(*node).empty();
    nodes.push_back(node);
  });
  if (has_calls) return;
  std::vector<std::optional<std::string>> places;
  places.reserve(nodes.size());
  for (const Node* node : nodes) places.push_back(place_of_reads(*node, module));
  std::vector<std::optional<std::string>> next(nodes.size());
  std::optional<std::string> last;
  for (std::size_t i = nodes.size(); i-- > 0;) {
    if (places[i]) last = places[i];
    next[i] = last;
  }
  last.reset();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (places[i]) last = places[i];
    const std::string place = last && next[i] ? common_path(*last, *next[i]) : "";
    if (!place.empty()) nodes[i]->setScope(scope_of_module(place));
  }
}

}  // namespace mezzo::deploy::script
