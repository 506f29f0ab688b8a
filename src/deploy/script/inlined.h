// A method as one graph without calls, in which every node knows its module.
#pragma once

#include <set>
#include <string>

#include "deploy/script/names.h"

namespace mezzo::deploy::script {

/// Puts the bodies of called methods and functions into the graph. Each node's scope becomes the
/// path of the module whose code it is. Calls of interfaces stay.
void inline_calls(torch::jit::Graph& graph);

/// The module whose code the node is; "" for the outermost one.
std::string module_of(const torch::jit::Node& node);

/// The paths of the attributes that the graph writes with prim::SetAttr.
std::set<std::string> written_attributes(torch::jit::Graph& graph);

/// Replaces numbers, texts and None among the attributes, `training` included, by constants, as far
/// as nothing writes them, and removes what then never runs.
void fold_settings(std::shared_ptr<torch::jit::Graph> graph, const torch::jit::Module& module,
                   const std::set<std::string>& written);

/// Reads each attribute once, where the method begins, as far as nothing sets it: what is written
/// in place is then seen by all readers of one value.
void unify_reads(torch::jit::Graph& graph, const torch::jit::Module& module,
                 const std::set<std::string>& written);

/// Reads an attribute by its path, before `where`.
torch::jit::Value* read_attribute(torch::jit::Graph& graph, const std::string& path,
                                  torch::jit::Node* where);

/// A trace calls no methods, so its nodes have no module. Each gets that of the parameters it
/// reads, and between two of these the path that both have in common.
void place_by_parameters(torch::jit::Graph& graph, const torch::jit::Module& module);

/// Calls `visit` with every node of the block and of those inside, in order.
template <typename Visit>
void for_each_node(torch::jit::Block* block, const Visit& visit) {
  for (auto node = block->nodes().begin(); node != block->nodes().end();) {
    torch::jit::Node* const current = *node;
    ++node;  // `visit` may remove the node
    for (torch::jit::Block* inner : current->blocks()) for_each_node(inner, visit);
    visit(current);
  }
}

}  // namespace mezzo::deploy::script
